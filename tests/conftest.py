"""What holds for every test, however the run was started."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SYSTEM_FOLDERS = (TESTS / "lab", TESTS / "service")


def pytest_configure() -> None:
    # A run under nohup ignores hang-ups, one in the background of a script interrupts, and so would all that it starts.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(folder in item.path.parents for folder in SYSTEM_FOLDERS):
            item.add_marker(pytest.mark.system)
