"""Waits on a state, with a deadline far above what it takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tests.unit.runtime.scripted_runtime import DEADLINE_SECONDS


def wait_until(holds: Callable[[], Any]) -> None:
    """Return once ``holds()`` is true. Fails after the deadline."""
    ends = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < ends, "the state never came"
        time.sleep(0.001)


class InThread:
    """Runs a call on a thread of its own; ``outcome()`` gives its result or raises what it raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # handed to whoever asks for the outcome
            self._error = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def outcome(self) -> Any:
        self._thread.join(DEADLINE_SECONDS)
        assert self.done, "the call never returned"
        if self._error is not None:
            raise self._error
        return self._result
