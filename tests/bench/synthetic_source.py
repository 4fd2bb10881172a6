"""A source of text in place of a runtime: every open stream gets a chunk a step.

Like a native runtime it wakes the server's event loop by a descriptor and takes no part in the interpreter: the steps
are bytes that the benchmark writes into a named pipe. A step begins when every stream has taken its chunk of the step
before, so that nothing is ever merged, whoever is late.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

TEXT = " word"
STEP = b"s"
LOOK_AGAIN = b"-"
OPEN_DEADLINE_SECONDS = 60.0


class Outlets(Protocol):
    """The streams of one server, on its event loop."""

    @property
    def open_streams(self) -> int: ...

    def give(self, text: str) -> None:
        """A chunk to every stream."""
        ...

    def end(self) -> None:
        """The end to every stream, which is forgotten."""
        ...


class SyntheticSource:
    """``read_pipe`` is to be called on the event loop whenever ``descriptor`` is readable."""

    def __init__(self, pipe: Path, outlets: Outlets) -> None:
        self.descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self._outlets = outlets
        self._untaken = 0
        self._steps_left = 0
        self._began = (0.0, 0.0)
        self._spent: dict[str, float] = {}
        self._done = threading.Event()

    def look_again(self) -> None:
        os.write(self.descriptor, LOOK_AGAIN)

    def read_pipe(self) -> None:
        """One step at most: those that are left in the pipe keep it readable, without a further write."""
        if self._untaken == 0 and os.read(self.descriptor, 1) == STEP:
            self._untaken = self._outlets.open_streams
            self._outlets.give(TEXT)

    def took_chunk(self) -> None:
        """Called by a server where it takes a chunk out of its stream."""
        self._untaken -= 1
        if self._untaken > 0:
            return
        self._steps_left -= 1
        if self._steps_left == 0:
            cpu, wall = time.process_time() - self._began[0], time.perf_counter() - self._began[1]
            self._spent = {"cpu_seconds": cpu, "wall_seconds": wall}
            self._done.set()

    # On the thread that obeys

    def prepare(self, streams: int, steps: int) -> None:
        """Return once the streams are open; what is spent counts from then to the last chunk."""
        deadline = time.monotonic() + OPEN_DEADLINE_SECONDS
        while self._outlets.open_streams < streams:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._outlets.open_streams} of {streams} streams were opened")
            time.sleep(0.001)
        time.sleep(0.05)  # the heads of the answers are on their way
        self._steps_left = steps
        self._done.clear()
        self._began = (time.process_time(), time.perf_counter())

    def spent(self) -> dict[str, float]:
        self._done.wait()
        return self._spent


def obey(
    source: SyntheticSource, port: int, call_on_loop: Callable[[Callable[[], None]], object], stop: Callable[[], None]
) -> None:
    """Runs on a thread beside the event loop: the port as the first line, then one answer for each line of input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    answer({"port": port})
    for line in sys.stdin:
        order = json.loads(line)
        if "streams" in order:
            source.prepare(**order)
            answer({})
        else:
            spent = source.spent()
            call_on_loop(source._outlets.end)
            answer(spent)
    call_on_loop(stop)
