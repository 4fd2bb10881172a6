"""What a machine lacks: tests that need it are skipped there and say why; the gate has everything and skips none."""

from __future__ import annotations

import os
import sys

import pytest
from tests.lab.rootfs import PYTHON_OF_SUITE, mirror_of_this_machine, missing_tools


def need(*reasons: str) -> None:
    """Skip by the first of ``reasons`` that is not ""; in the gate it fails instead."""
    reason = next(filter(None, reasons), "")
    if reason and os.environ.get("EDGELLM_CI") != "1":
        pytest.skip(reason)
    assert not reason, reason


def missing_for_devices() -> str:
    """What this machine lacks to make devices, or ""."""
    return missing_tools() or ("" if mirror_of_this_machine() else "needs a Debian whose apt has the devices' suite")


def missing_python() -> str:
    """Why devices cannot run what this environment has installed, or ""."""
    needed = ".".join(map(str, PYTHON_OF_SUITE))
    return (
        "" if sys.version_info[:2] == PYTHON_OF_SUITE else f"needs an environment of Python {needed}, as devices have"
    )
