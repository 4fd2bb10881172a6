"""DirectAdmission: how many callers of the Python API hold the runtime at a time. The others block, none is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable

from edgellm.errors import ClosedError, RequestCancelledError


class DirectAdmission:
    """A counted gate that closes: waiting callers then leave with ClosedError, holders still release."""

    def __init__(self, permits: int) -> None:
        self.permits = permits
        self._free = permits
        self._closed = False
        self._changed = threading.Condition()

    def acquire(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """Block until a permit is free. Raises ClosedError, or RequestCancelledError once ``given_up()`` holds."""
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0 or self._closed or given_up())
            if self._closed:
                raise ClosedError("this model was closed")
            if given_up():
                raise RequestCancelledError("the request was cancelled before it started")
            self._free -= 1

    def release(self) -> None:
        with self._changed:
            if self._free >= self.permits:
                raise RuntimeError("a permit was released twice")
            self._free += 1
            self._changed.notify_all()

    def wake(self) -> None:
        """Let waiting callers look again at what they were told to give up on."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait_until_free(self) -> None:
        """Block, without limit, until every permit has come back."""
        with self._changed:
            self._changed.wait_for(lambda: self._free == self.permits)
