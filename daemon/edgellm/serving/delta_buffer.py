"""DeltaBuffer: hands deltas from lanes to one reader; what a slow reader has not taken yet comes as one."""

from __future__ import annotations

import asyncio

from edgellm.runtime.outputs import LogprobEntry, StreamDelta


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
        return [(index, merged(deltas)) for index, deltas in taken.items()]


def merged(deltas: list[StreamDelta]) -> StreamDelta:
    """One delta that says what these say in a row."""
    if len(deltas) == 1:
        return deltas[0]
    last = deltas[-1]
    token_ids: list[int] = []
    logprobs: list[list[LogprobEntry]] = []
    for delta in deltas:
        token_ids += delta.token_ids
        logprobs += delta.logprobs or ()
    return StreamDelta(
        text="".join(delta.text for delta in deltas),
        token_ids=token_ids,
        prompt_tokens=_latest(deltas, "prompt_tokens"),
        finished=last.finished,
        finish_reason=last.finish_reason,
        logprobs=logprobs or None,
        cached_tokens=_latest(deltas, "cached_tokens"),
        matched_stop=last.matched_stop,
    )


def _latest(deltas: list[StreamDelta], field: str) -> int | None:
    values: list[int] = [value for delta in deltas if (value := getattr(delta, field)) is not None]
    return values[-1] if values else None
