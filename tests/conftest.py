"""What holds for every test, however the run was started."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    # A run under nohup ignores hang-ups, one in the background of a script interrupts, and so would all that it starts.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
