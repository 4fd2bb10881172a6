"""The reference pages are what the code says now."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgellm.cli.reference import pages
from edgellm.config.load import LoadedSettings, load_settings

FOLDER = Path(__file__).resolve().parents[3] / "daemon" / "reference"


@pytest.mark.parametrize("name", sorted(pages()))
def test_the_committed_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == pages()[name], "run: make reference"


def test_the_example_in_the_reference_is_a_right_configuration(tmp_path: Path) -> None:
    example = pages()["config.md"].partition("```toml\n")[2].partition("```")[0]
    file = tmp_path / "edgellm.toml"
    file.write_text(example)
    loaded: LoadedSettings = load_settings(file=file, environ={})
    assert loaded.settings.models[0].sampling.temperature == 0.2
