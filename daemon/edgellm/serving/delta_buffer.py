"""DeltaBuffer: hands deltas from lanes to one reader; what a slow reader has not taken yet comes as one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from edgellm.runtime.deltas import merge_deltas
from edgellm.runtime.outputs import StreamDelta

TakeAtOnce = Callable[[int, StreamDelta], bool]


class DeltaBuffer:
    """A reader gets at most one delta a choice each time, however slow it is. Used from one event loop."""

    def __init__(self) -> None:
        self._deltas: dict[int, list[StreamDelta]] = {}
        self._closed = False
        self._readable = asyncio.Event()
        self._at_once: TakeAtOnce | None = None
        self._reader_error: Exception | None = None

    def put(self, index: int, delta: StreamDelta) -> None:
        if self._at_once is not None:
            try:
                if self._at_once(index, delta):
                    return
            except Exception as error:  # the reader's own failure: it is not the lane's to see
                self._reader_error = error
            self._at_once = None
        waiting = self._deltas.get(index)
        if waiting is None:
            self._deltas[index] = [delta]
        else:
            waiting.append(delta)
        self._readable.set()

    def close(self) -> None:
        """What was put is still taken; after it, take() returns nothing."""
        self._closed = True
        self._readable.set()

    async def take(self, at_once: TakeAtOnce | None = None) -> list[tuple[int, StreamDelta]]:
        """Wait for deltas. While it waits, each is first offered to ``at_once(index, delta)``, which runs inside the
        lane's call: those that it answers with True are dealt with, and the wait goes on.
        """
        if not self._deltas and not self._closed:
            self._readable.clear()
            self._at_once = at_once
            try:
                await self._readable.wait()
            finally:
                self._at_once = None
        if self._reader_error is not None:
            raise self._reader_error
        taken, self._deltas = self._deltas, {}
        return [(index, merge_deltas(deltas)) for index, deltas in taken.items()]
