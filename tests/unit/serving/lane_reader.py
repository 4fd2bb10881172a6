"""Reads one request of a lane as serving does, and lets a test wait for what came."""

from __future__ import annotations

import asyncio

from edgellm.errors import EdgeLLMError
from edgellm.runtime.generation import GenerationRequest
from edgellm.runtime.outputs import StreamDelta
from edgellm.serving.lane import Lane, LaneGeneration


class LaneReader:
    """The receiver of one request; ``generation`` is there once ``submit`` has returned."""

    def __init__(self) -> None:
        self.seen: list[StreamDelta] = []
        self.generation: LaneGeneration | None = None
        self.ends = 0
        self._error: EdgeLLMError | None = None
        self._changed = asyncio.Event()

    @classmethod
    async def submit(cls, lane: Lane, request: GenerationRequest) -> LaneReader:
        reader = cls()
        reader.generation = await lane.submit(request, reader)
        return reader

    def take(self, delta: StreamDelta) -> None:
        assert self.ends == 0
        assert not self.finished
        self.seen.append(delta)
        self._changed.set()

    def take_text(self, text: str, token_ids: list[int]) -> None:
        self.take(StreamDelta(text, token_ids))

    def ended(self, error: EdgeLLMError | None) -> None:
        self.ends += 1
        self._error = error
        self._changed.set()

    @property
    def finished(self) -> bool:
        return bool(self.seen) and self.seen[-1].finished

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.seen)

    def cancel(self) -> None:
        assert self.generation is not None
        self.generation.cancel()

    async def first(self) -> StreamDelta:
        while not self.seen:
            await self._change()
        return self.seen[0]

    async def finish(self) -> None:
        """Until the finished delta: the runtime may still hold the request."""
        while not self.finished:
            await self._change()

    async def end(self) -> list[StreamDelta]:
        """Everything, once the runtime has let go. Raises what the lane says went wrong."""
        while not self.ends:
            await self._change()
        assert self.ends == 1
        if self._error is not None:
            raise self._error
        return self.seen

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
