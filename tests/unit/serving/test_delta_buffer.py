"""The buffer between lanes and a reader."""

from __future__ import annotations

import asyncio

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


def test_a_waiting_reader_takes_deltas_at_once_until_it_cannot() -> None:
    async def scenario() -> None:
        buffer = DeltaBuffer()
        seen: list[str] = []

        def at_once(index: int, delta: StreamDelta) -> bool:
            if len(seen) == 2:
                return False
            seen.append(f"{index}{delta.text}")
            return True

        buffer.put(0, StreamDelta(text="a"))  # came before the reader: not offered
        assert [delta.text for _, delta in await buffer.take(at_once)] == ["a"]
        reading = asyncio.create_task(buffer.take(at_once))
        await settle()
        for text in "bcde":
            buffer.put(1, StreamDelta(text=text))
        assert seen == ["1b", "1c"]
        assert [(index, delta.text) for index, delta in await reading] == [(1, "de")]
        buffer.put(0, StreamDelta(text="f"))  # nobody waits
        assert len(seen) == 2
        assert [delta.text for _, delta in await buffer.take(at_once)] == ["f"]
        reading = asyncio.create_task(buffer.take(at_once))
        await settle()
        buffer.close()
        assert await reading == []

    asyncio.run(scenario())


def test_what_a_reader_raises_reaches_the_reader_alone() -> None:
    async def scenario() -> None:
        buffer = DeltaBuffer()

        def at_once(index: int, delta: StreamDelta) -> bool:
            raise KeyError(delta.text)

        reading = asyncio.create_task(buffer.take(at_once))
        await settle()
        buffer.put(0, StreamDelta(text="a"))
        buffer.put(0, StreamDelta(text="b"))
        with pytest.raises(KeyError, match="a"):
            await reading

    asyncio.run(scenario())
