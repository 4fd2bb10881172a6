"""Cancellation: whether a request is wanted no more, asked by whoever works on it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event


def _nothing() -> None:
    """Nobody counts."""


class Cancellation:
    """Called after every little that was done, it also tells that work goes on. Who only waits looks at ``is_set``: a
    model that hangs must not seem to work. Thread-safe.
    """

    def __init__(self, on_progress: Callable[[], None] = _nothing) -> None:
        self._on_progress = on_progress
        self._event = Event()

    def __call__(self) -> bool:
        self._on_progress()
        return self._event.is_set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        self._event.set()
