"""The package root: every export is there, and importing it loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

import edgellm


@pytest.mark.parametrize("name", edgellm.__all__)
def test_every_export_is_found(name: str) -> None:
    assert getattr(edgellm, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = edgellm.nothing


def test_importing_the_package_loads_no_other_package() -> None:
    program = (
        "import sys; before = set(sys.modules); import edgellm; dir(edgellm);"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names);"
        "print(sorted(new))"
    )
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert answer.stdout.strip() == "['edgellm']"
