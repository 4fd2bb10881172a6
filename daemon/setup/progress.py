"""Runs one long command so that a person sees it move, and its whole output stays in a log file."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import textwrap
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

HEARTBEAT_SECONDS = 10.0
REDRAW_SECONDS = 0.2
FAILURE_LINES_SHOWN = 25
LINE_COLUMNS_MAX = 100


class StepFailedError(Exception):
    """A command ended with an error; ``tail`` holds the last lines it wrote."""

    def __init__(self, title: str, exit_code: int, log: Path, tail: Sequence[str]) -> None:
        super().__init__(f"{title} failed with exit code {exit_code}; the whole output is in {log}")
        self.tail = tuple(tail)


class _Display:
    """On a terminal one line that is redrawn; elsewhere a line now and then, so that logs show life too."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._terminal = sys.stderr.isatty()
        self._began = time.monotonic()
        self._shown = self._began
        if not self._terminal:
            self._write(f"{title} …\n")

    def update(self, latest: str) -> None:
        now = time.monotonic()
        if now - self._shown < (REDRAW_SECONDS if self._terminal else HEARTBEAT_SECONDS):
            return
        self._shown = now
        line = f"{self._title} … {now - self._began:.0f} s  {latest}"
        if self._terminal:
            self._write(f"\r\x1b[2K{_fitted(line)}")
        else:
            self._write(f"{_fitted(line)}\n")

    def close(self, outcome: str) -> None:
        line = f"{self._title}: {outcome} ({time.monotonic() - self._began:.0f} s)\n"
        self._write(f"\r\x1b[2K{line}" if self._terminal else line)

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _fitted(line: str) -> str:
    """What is too long ends after a word; a single word that is too long is left out."""
    return textwrap.shorten(line, LINE_COLUMNS_MAX, placeholder=" …")


def run(title: str, argv: Sequence[str], *, log: Path, environ: Mapping[str, str], cwd: Path) -> None:
    """Return once the command has succeeded. Raises StepFailedError; an interrupt ends the command too."""
    display = _Display(title)
    tail: deque[str] = deque(maxlen=FAILURE_LINES_SHOWN)
    pending = ""
    with (
        log.open("wb") as stream,
        subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environ,
            cwd=cwd,
            start_new_session=True,  # so that the compilers below it can be ended together with it
        ) as process,
    ):
        output = process.stdout
        if output is None:
            raise RuntimeError("a pipe was asked for")
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(output, selectors.EVENT_READ)
                while True:
                    if selector.select(REDRAW_SECONDS):
                        chunk = os.read(output.fileno(), 65536)
                        if not chunk:
                            break
                        stream.write(chunk)
                        lines = (pending + chunk.decode(errors="replace")).replace("\r", "\n").split("\n")
                        pending = lines.pop()
                        tail.extend(line.rstrip() for line in lines if line.strip())
                    display.update(tail[-1].strip() if tail else "")
            exit_code = process.wait()
        except BaseException:  # an interrupt above all: nothing may go on alone
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            display.close("interrupted")
            raise
    if exit_code != 0:
        display.close("failed")
        if pending.strip():
            tail.append(pending.rstrip())
        raise StepFailedError(title, exit_code, log, tail)
    display.close("done")
