"""Chunks that the runtime writes to a worker's socket itself: the same messages, in order, none lost."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
from tests.native.runtime_driver import Ask, BundleMaker, native_module, runtime_options

from edgellm.serving.worker.frames import FrameReader
from edgellm.serving.worker.messages import Accepted, Delta, Final, ToFrontEnd
from edgellm.serving.worker.outlet import Outlet

module = native_module()

DEADLINE_SECONDS = 120.0
TOKENS = 60
STREAM = 70_000  # more than two bytes of msgpack
MUCH_CREDIT = 1 << 20


@pytest.fixture(scope="module")
def engine(tiny_bundle: BundleMaker) -> Iterator[Any]:
    made = module.RequestEngine(str(tiny_bundle("llama")), max_batch_size=2, options=runtime_options(threads=1))
    yield made
    made.shutdown(module.ShutdownMode.CANCEL)


class FrontEnd:
    """The other end of the socket: messages as the daemon reads them."""

    def __init__(self) -> None:
        self.ours, theirs = socket.socketpair()
        self.frames = module.FrameSocket(theirs.fileno())
        theirs.close()  # the FrameSocket has a descriptor of its own
        self._reader: FrameReader[ToFrontEnd] = FrameReader(cast("type[ToFrontEnd]", ToFrontEnd))

    def messages(self) -> list[ToFrontEnd]:
        """Everything that is there now."""
        messages: list[ToFrontEnd] = []
        while select.select([self.ours], [], [], 0)[0]:
            messages += self._reader.feed(self.ours.recv(1 << 16))
        return messages


@pytest.fixture
def front_end() -> Iterator[FrontEnd]:
    made = FrontEnd()
    yield made
    made.ours.close()


def run(engine: Any, front_end: FrontEnd, credit: int, seed: int) -> tuple[list[int], list[str], list[int], int]:
    """One request: its token ids and texts in the order they came, the ids it has, how many chunks were forwarded."""
    ask = Ask([5, 6, seed], max_tokens=TOKENS, temperature=1.0, seed=seed, extensions={"ignore_eos": True})
    request = ask.native()
    channel = request.stream_channels[0]
    channel.forward_to(front_end.frames.delta_frames(STREAM, credit))
    channel.resume_forwarding()
    handle = engine.submit(request)
    ids: list[int] = []
    texts: list[str] = []
    forwarded = 0

    def take_forwarded() -> None:
        nonlocal forwarded
        for message in front_end.messages():
            assert isinstance(message, Delta)
            assert message.stream == STREAM
            assert message.finish_reason is None
            ids.extend(message.token_ids)
            texts.append(message.text)
            forwarded += 1

    deadline = time.monotonic() + DEADLINE_SECONDS
    ended = False
    while not ended:
        assert time.monotonic() < deadline
        ended = channel.is_finished() and handle.ready()  # asked first: everything has been said then
        waiting = channel.wait_pop(20)
        # What was forwarded came before what waits.
        take_forwarded()
        while waiting is not None:
            ids.extend(waiting.token_ids)
            texts.append(waiting.text)
            waiting = channel.try_pop()
        channel.resume_forwarding()
    take_forwarded()
    response = handle.get()
    return ids, texts, list(response.output_ids[0]), forwarded


def test_forwarded_chunks_are_messages_of_the_protocol(engine: Any, front_end: FrontEnd) -> None:
    ids, texts, expected, forwarded = run(engine, front_end, MUCH_CREDIT, seed=1)
    assert ids == expected
    assert forwarded >= TOKENS // 2
    reference = Ask([5, 6, 1], max_tokens=TOKENS, temperature=1.0, seed=1, extensions={"ignore_eos": True}).native()
    assert "".join(texts) == engine.submit(reference).get().output_texts[0]


@pytest.mark.parametrize("credit", [0, 1, 7])
def test_without_credit_chunks_wait_for_the_reader_in_order(engine: Any, front_end: FrontEnd, credit: int) -> None:
    ids, _, expected, forwarded = run(engine, front_end, credit, seed=2 + credit)
    assert ids == expected
    assert forwarded == credit


def test_chunks_with_logprobs_are_left_to_the_reader(engine: Any, front_end: FrontEnd) -> None:
    request = Ask([5, 6], max_tokens=5, logprobs=2, extensions={"ignore_eos": True}).native()
    channel = request.stream_channels[0]
    channel.forward_to(front_end.frames.delta_frames(STREAM, MUCH_CREDIT))
    channel.resume_forwarding()
    engine.submit(request).get()
    chunks = []
    while (chunk := channel.try_pop()) is not None:
        chunks.append(chunk)
    assert sum(len(chunk.token_ids) for chunk in chunks) == 5
    assert front_end.messages() == []


def test_an_outlet_keeps_the_order_through_the_hand_over_and_a_reader_that_stops_reading() -> None:
    async def send_and_read() -> tuple[list[ToFrontEnd], bool]:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        transport, _ = await loop.create_unix_connection(asyncio.Protocol, sock=theirs)
        outlet = Outlet(transport)
        outlet.hand_over(module.FrameSocket(theirs.fileno()))
        text = "x" * 2000
        for number in range(2000):
            outlet.send(Delta(number, text, [number]))
            if number == 1000:
                await asyncio.sleep(0.05)
        outlet.send(Final(2000))
        was_kept = bool(outlet.kept_bytes)
        reader: FrameReader[ToFrontEnd] = FrameReader(cast("type[ToFrontEnd]", ToFrontEnd))
        messages: list[ToFrontEnd] = []
        ours.setblocking(False)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not messages or not isinstance(messages[-1], Final):
                messages += reader.feed(await loop.sock_recv(ours, 1 << 16))
        outlet.send(Accepted(1))  # nothing is kept any more: it goes at once
        messages += reader.feed(await loop.sock_recv(ours, 1 << 16))
        transport.close()
        ours.close()
        return messages, was_kept

    messages, was_kept = asyncio.run(send_and_read())
    assert was_kept
    assert [message.stream for message in messages if isinstance(message, Delta)] == list(range(2000))
    assert [type(message) for message in messages[-2:]] == [Final, Accepted]
