"""DeltaBuffer: hands deltas from lanes to one reader; what a slow reader has not taken yet comes as one."""

from __future__ import annotations

import asyncio

from edgellm.runtime.deltas import merge_deltas
from edgellm.runtime.outputs import StreamDelta


class DeltaBuffer:
    """A reader gets at most one delta a choice each time, however slow it is. Used from one event loop."""

    def __init__(self) -> None:
        self._deltas: dict[int, list[StreamDelta]] = {}
        self._closed = False
        self._readable = asyncio.Event()

    def put(self, index: int, delta: StreamDelta) -> None:
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

    async def take(self) -> list[tuple[int, StreamDelta]]:
        if not self._deltas and not self._closed:
            self._readable.clear()
            await self._readable.wait()
        taken, self._deltas = self._deltas, {}
        return [(index, merge_deltas(deltas)) for index, deltas in taken.items()]
