"""A program of this checkout as on another day: the clock that it reads is ahead, and its files get other rights."""

from __future__ import annotations

import sys
from pathlib import Path

AHEAD_SECONDS = 400 * 86_400
UMASK = 0o077
_AHEAD = """
import runpy, sys, time
now, now_ns = time.time, time.time_ns
time.time = lambda: now() + {ahead}
time.time_ns = lambda: now_ns() + {ahead} * 10**9
for name in ("localtime", "gmtime"):
    setattr(time, name, lambda at=None, of=getattr(time, name): of(time.time() if at is None else at))
sys.argv[:1] = []
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def on_another_day(program: Path, *options: str) -> list[str]:
    """The beginning of a command; ``options`` are Python's."""
    return [sys.executable, *options, "-c", _AHEAD.format(ahead=AHEAD_SECONDS), str(program)]
