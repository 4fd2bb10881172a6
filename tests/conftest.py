"""What holds for every test, however the run was started."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SYSTEM_FOLDERS = tuple(TESTS / name for name in ("lab", "service", "container", "fleet"))
# These make their cases while they are collected, which takes longer than all other files together.
SLOW_TO_COLLECT = TESTS / "http/test_made_up_requests.py"
SLOW_TO_COLLECT_LONG = TESTS / "http/test_many_made_up_requests.py"


def pytest_configure() -> None:
    # A run under nohup ignores hang-ups, one in the background of a script interrupts, and so would all that it starts.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run that wants none of a slow file does not read it."""
    expression = config.option.markexpr
    if "not system" in expression and collection_path in SYSTEM_FOLDERS:
        return True  # they import what only their own set-up installs
    if collection_path == SLOW_TO_COLLECT and expression in ("system", "long", "long and ci_slice"):
        return True
    if collection_path == SLOW_TO_COLLECT_LONG and expression in (
        "system",
        "long and ci_slice",
        "not long and not system",
    ):
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(folder in item.path.parents for folder in SYSTEM_FOLDERS) and not item.get_closest_marker("long"):
            item.add_marker(pytest.mark.system)
