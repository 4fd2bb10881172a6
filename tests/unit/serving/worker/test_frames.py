"""Frames: any message, cut anywhere, comes out whole; anything else is refused without growing or crashing."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.serving.scripted_lane import capabilities

from edgellm.serving.worker.frames import MAX_FRAME_BYTES, FrameError, FrameReader, FrameTooLargeError, FrameWriter
from edgellm.serving.worker.messages import (
    Accepted,
    Cancel,
    Counted,
    Credit,
    Delta,
    Failure,
    Final,
    Hello,
    Loading,
    NotLoaded,
    Ping,
    Pong,
    Ready,
    Shutdown,
    Submit,
    ToFrontEnd,
    ToWorker,
)

NUMBERS = st.integers(0, 2**63 - 1)
TO_FRONT_END = st.one_of(
    st.builds(Loading, st.text(), st.none() | st.floats(0, 1)),
    st.builds(NotLoaded, st.text(), st.text()),
    st.builds(Accepted, NUMBERS),
    st.builds(
        Delta,
        NUMBERS,
        st.text(),
        st.lists(NUMBERS),
        st.none() | st.text(),
        logprobs=st.none()
        | st.lists(st.lists(st.tuples(NUMBERS, st.floats(allow_nan=False), st.text(), st.binary()), max_size=2)),
    ),
    st.builds(Final, NUMBERS, st.none() | st.builds(Failure, st.text(), st.text()), st.booleans()),
    st.builds(Pong, NUMBERS, NUMBERS, NUMBERS),
    st.builds(Counted, NUMBERS, st.none() | NUMBERS),
    st.builds(Ready, NUMBERS, st.just(capabilities()), st.text(), st.text()),
)


def reader() -> FrameReader[Any]:
    return FrameReader(ToFrontEnd)  # type: ignore[arg-type]


@given(messages=st.lists(TO_FRONT_END, max_size=8), cuts=st.lists(st.integers(0, 400), max_size=12))
def test_messages_cut_anywhere_come_out_whole_and_in_order(messages: list[msgspec.Struct], cuts: list[int]) -> None:
    writer, frames = FrameWriter(), reader()
    sent = b"".join(writer.frame(message) for message in messages)
    received: list[Any] = []
    begin = 0
    for end in [*sorted(cut for cut in cuts if cut < len(sent)), len(sent)]:
        received += frames.feed(sent[begin:end])
        begin = end
    assert received == messages
    assert not frames.is_in_a_frame


@given(garbage=st.binary(min_size=1, max_size=4096))
def test_garbage_is_refused_or_waited_on_but_never_read_as_something_else(garbage: bytes) -> None:
    frames = reader()
    try:
        messages = list(frames.feed(garbage))
    except FrameError:
        return
    # What was accepted says the same when it is written again in this protocol's own words.
    for message in messages:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=ToFrontEnd) == message


@given(message=TO_FRONT_END, position=st.integers(0, 10_000), value=st.integers(0, 255))
def test_a_flipped_byte_never_crashes_the_reader(message: msgspec.Struct, position: int, value: int) -> None:
    frame = bytearray(FrameWriter().frame(message))
    frame[position % len(frame)] = value
    with suppress(FrameError):
        list(reader().feed(bytes(frame)))


def test_a_frame_that_is_too_long_is_refused_before_it_is_read() -> None:
    frames = reader()
    with pytest.raises(FrameError, match="8388609 bytes"):
        list(frames.feed(struct.pack("<I", MAX_FRAME_BYTES + 1)))
    with pytest.raises(FrameTooLargeError):
        FrameWriter().frame(Delta(1, "x" * (MAX_FRAME_BYTES + 1), []))


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xc1", b"\x92\x18\xa1x", b"\x93\x18\x01\xa2\xff\xfe", msgspec.msgpack.encode([99, 1]), b"\x91" * 100_000],
    ids=["empty", "no msgpack", "wrong type", "no UTF-8", "unknown message", "nested"],
)
def test_payloads_that_are_no_message_are_refused_without_quoting_them(payload: bytes) -> None:
    with pytest.raises(FrameError, match=r"^a frame holds no message of this protocol$"):
        list(reader().feed(struct.pack("<I", len(payload)) + payload))


def test_the_two_directions_do_not_mix() -> None:
    to_worker: FrameReader[Any] = FrameReader(ToWorker)  # type: ignore[arg-type]
    for message in (Hello(1, "0", {}), Submit(1, {}, [1]), Cancel(1), Credit(1, 2), Ping(1), Shutdown()):
        frame = FrameWriter().frame(message)
        assert list(to_worker.feed(frame)) == [message]
        with pytest.raises(FrameError):
            list(reader().feed(frame))


def test_what_came_whole_before_a_broken_frame_is_still_handed_out() -> None:
    frames = reader()
    received: list[Any] = []
    with pytest.raises(FrameError):
        received.extend(frames.feed(FrameWriter().frame(Accepted(7)) + b"\xff\xff\xff\xff"))
    assert received == [Accepted(7)]
