"""What holds for every test, however the run was started."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    # A run under nohup ignores hang-ups, and so would every daemon that it starts.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
