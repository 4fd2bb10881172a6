"""The buffer between lanes and a reader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.unit.serving.scripted_lane import settle

from edgellm.runtime.outputs import StreamDelta
from edgellm.serving.delta_buffer import DeltaBuffer


def test_a_reader_waits_and_gets_one_delta_a_choice() -> None:
    async def scenario() -> None:
        buffer = DeltaBuffer()
        reading = asyncio.create_task(buffer.take())
        await settle()
        assert not reading.done()
        buffer.put(0, StreamDelta(text="a", token_ids=[1]))
        buffer.put(1, StreamDelta(text="x"))
        buffer.put(0, StreamDelta(text="b", token_ids=[2], finished=True, finish_reason="stop", prompt_tokens=3))
        taken = dict(await reading)
        assert taken[0] == StreamDelta("ab", [1, 2], prompt_tokens=3, finished=True, finish_reason="stop")
        assert taken[1].text == "x"

    asyncio.run(scenario())


def test_what_was_put_before_the_end_is_still_taken() -> None:
    async def scenario() -> None:
        buffer = DeltaBuffer()
        buffer.put(0, StreamDelta(text="a"))
        buffer.close()
        assert [delta.text for _, delta in await buffer.take()] == ["a"]
        assert await buffer.take() == []
        assert await buffer.take() == []

    asyncio.run(scenario())


def test_a_reader_that_gives_up_waiting_loses_nothing() -> None:
    async def scenario() -> None:
        buffer = DeltaBuffer()
        reading = asyncio.create_task(buffer.take())
        await settle()
        buffer.put(0, StreamDelta(text="a"))
        reading.cancel()
        await settle()
        assert [delta.text for _, delta in await buffer.take()] == ["a"]

    asyncio.run(scenario())


class Reader:
    """Takes ``limit`` deltas; with ``writes_text`` it wants text alone after the first of a choice."""

    def __init__(self, limit: int, *, writes_text: bool = False) -> None:
        self.seen: list[str] = []
        self._limit = limit
        self._writes_text = writes_text

    def take(self, index: int, delta: StreamDelta) -> bool:
        if len(self.seen) == self._limit:
            return False
        self.seen.append(f"{index}{delta.text}")
        return True

    def text_writer(self, index: int) -> Callable[[str], bool] | None:
        def write_text(text: str) -> bool:
            if len(self.seen) == self._limit:
                return False
            self.seen.append(f"{index}:{text}")
            return True

        return write_text if self._writes_text else None


def test_a_waiting_reader_takes_deltas_at_once_until_it_cannot() -> None:
    async def scenario() -> None:
        buffer = DeltaBuffer()
        reader = Reader(2)
        buffer.put(0, StreamDelta(text="a"))  # came before the reader: not offered
        assert [delta.text for _, delta in await buffer.take(reader)] == ["a"]
        reading = asyncio.create_task(buffer.take(reader))
        await settle()
        for text in "bcde":
            buffer.put(1, StreamDelta(text=text))
        assert reader.seen == ["1b", "1c"]
        assert [(index, delta.text) for index, delta in await reading] == [(1, "de")]
        buffer.put(0, StreamDelta(text="f"))  # nobody waits
        assert len(reader.seen) == 2
        assert [delta.text for _, delta in await buffer.take(reader)] == ["f"]
        reading = asyncio.create_task(buffer.take(reader))
        await settle()
        buffer.close()
        assert await reading == []

    asyncio.run(scenario())


def test_text_alone_becomes_a_delta_only_where_nobody_takes_it_as_text() -> None:
    async def scenario() -> None:
        buffer = DeltaBuffer()
        reader = Reader(4, writes_text=True)
        reading = asyncio.create_task(buffer.take(reader))
        await settle()
        buffer.put_text(0, "a", [1])
        buffer.put_text(0, "b", [2])
        buffer.put_text(1, "x", [3])
        buffer.put_text(0, "", [4])  # no text: nothing to write
        assert reader.seen == ["0a", "0:b", "1x", "0"]
        buffer.put_text(0, "c", [5])  # it can take no more
        buffer.put_text(0, "d", [6])
        buffer.put_text(1, "y", [7])
        assert dict(await reading) == {0: StreamDelta("cd", [5, 6]), 1: StreamDelta("y", [7])}
        buffer.put_text(0, "e", [8])  # nobody waits
        assert await buffer.take() == [(0, StreamDelta("e", [8]))]
        assert len(reader.seen) == 4

    asyncio.run(scenario())


def test_a_reader_that_stopped_waiting_is_given_no_text() -> None:
    async def scenario() -> None:
        buffer = DeltaBuffer()
        reader = Reader(9, writes_text=True)
        reading = asyncio.create_task(buffer.take(reader))
        await settle()
        buffer.put_text(0, "a", [1])
        reading.cancel()
        await settle()
        buffer.put_text(0, "b", [2])
        assert reader.seen == ["0a"]
        assert await buffer.take() == [(0, StreamDelta("b", [2]))]
        buffer.close()
        buffer.put_text(0, "c", [3])  # of no interest any more
        assert await buffer.take() == []

    asyncio.run(scenario())


class FailingReader:
    def __init__(self, *, takes_deltas: bool) -> None:
        self._takes_deltas = takes_deltas

    def take(self, index: int, delta: StreamDelta) -> bool:
        if self._takes_deltas:
            return True
        raise KeyError(delta.text)

    def text_writer(self, index: int) -> Callable[[str], bool]:
        def write_text(text: str) -> bool:
            raise KeyError(text)

        return write_text


@pytest.mark.parametrize("takes_deltas", [False, True])
def test_what_a_reader_raises_reaches_the_reader_alone(takes_deltas: bool) -> None:
    async def scenario() -> None:
        buffer = DeltaBuffer()
        reading = asyncio.create_task(buffer.take(FailingReader(takes_deltas=takes_deltas)))
        await settle()
        if takes_deltas:
            buffer.put_text(0, "", [])
        buffer.put_text(0, "a", [1])
        buffer.put_text(0, "b", [2])
        with pytest.raises(KeyError, match="a"):
            await reading

    asyncio.run(scenario())
