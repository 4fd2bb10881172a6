"""Whatever bytes come, cut wherever: messages of the protocol or FrameError, and nothing else, on both sides."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.serving.scripted_lane import capabilities

from edgellm.errors import EdgeLLMError, RequestError
from edgellm.runtime.generation import ChatPrompt, SpeechPrompt, TextPrompt, TokenPrompt
from edgellm.runtime.outputs import TranscriptFacts, TranscriptSegment, TranscriptWord
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.worker.conversion import from_delta_message, to_error, to_request
from edgellm.serving.worker.frames import FrameError, FrameReader, FrameWriter
from edgellm.serving.worker.messages import (
    Accepted,
    Cancel,
    Count,
    Counted,
    Credit,
    Delta,
    Failure,
    Final,
    Hello,
    Loading,
    LogLevel,
    Medium,
    NotLoaded,
    Ping,
    Pong,
    Ready,
    Shutdown,
    Submit,
    ToFrontEnd,
    ToWorker,
)

WHOLE = st.integers(-(2**63), 2**64 - 1)
TEXT = st.text(max_size=8)
ANYTHING = st.recursive(
    st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False) | TEXT | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
COUNTERS = st.none() | st.dictionaries(TEXT, WHOLE, max_size=3)
FAILURES = st.builds(
    Failure, TEXT | st.sampled_from(["ServerBusyError", "dict", "EdgeLLMError"]), TEXT, st.none() | TEXT
)
# Names that a side knows and names that it does not, with values of any kind.
PARAMS = st.dictionaries(st.sampled_from([each.name for each in fields(SamplingParams)]) | TEXT, ANYTHING, max_size=4)
PROMPT_FIELDS = [each.name for kind in (ChatPrompt, TextPrompt, TokenPrompt, SpeechPrompt) for each in fields(kind)]
PROMPTS = st.dictionaries(st.sampled_from(PROMPT_FIELDS) | TEXT, ANYTHING, max_size=4)
LOGPROBS = st.lists(st.lists(st.tuples(WHOLE, st.floats(allow_nan=False), TEXT, st.binary(max_size=4)), max_size=2))
SECONDS = st.floats(allow_nan=False)
SEGMENTS = st.builds(
    TranscriptSegment,
    *(TEXT, SECONDS, SECONDS, st.lists(WHOLE, max_size=3), SECONDS, SECONDS, SECONDS, SECONDS),
    st.lists(st.builds(TranscriptWord, TEXT, SECONDS, SECONDS), max_size=2),
)
MEDIA = st.builds(
    Medium,
    st.sampled_from(["image", "video", "audio"]),
    TEXT,
    WHOLE,
    st.booleans(),
    st.none() | st.floats(allow_nan=False),
)
MESSAGES: dict[type[msgspec.Struct], st.SearchStrategy[msgspec.Struct]] = {
    Hello: st.builds(Hello, WHOLE, TEXT, PARAMS, st.lists(WHOLE, max_size=3)),
    Submit: st.builds(
        Submit,
        WHOLE,
        PARAMS,
        st.none() | st.lists(WHOLE, max_size=4),
        st.none() | PROMPTS,
        TEXT,
        st.booleans(),
        st.lists(MEDIA, max_size=2),
    ),
    Cancel: st.builds(Cancel, WHOLE),
    Credit: st.builds(Credit, WHOLE, WHOLE),
    Ping: st.builds(Ping, WHOLE),
    Count: st.builds(Count, WHOLE, PARAMS, PROMPTS),
    Shutdown: st.builds(Shutdown),
    LogLevel: st.builds(LogLevel, TEXT),
    Loading: st.builds(Loading, TEXT, st.none() | st.floats(0, 1)),
    Ready: st.builds(Ready, WHOLE, st.just(capabilities()), TEXT, TEXT),
    NotLoaded: st.builds(NotLoaded, TEXT, TEXT),
    Accepted: st.builds(Accepted, WHOLE),
    Delta: st.builds(
        Delta,
        WHOLE,
        TEXT,
        st.lists(WHOLE, max_size=3),
        st.none() | TEXT,
        logprobs=st.none() | LOGPROBS,
        segments=st.none() | st.lists(SEGMENTS, max_size=2),
        transcript=st.none() | st.builds(TranscriptFacts, TEXT, SECONDS),
        audio=st.none() | st.binary(max_size=64),
        audio_frames=WHOLE,
    ),
    Final: st.builds(Final, WHOLE, st.none() | FAILURES, st.booleans()),
    Pong: st.builds(Pong, WHOLE, WHOLE, WHOLE, COUNTERS, COUNTERS),
    Counted: st.builds(Counted, WHOLE, st.none() | WHOLE, st.none() | FAILURES),
}
SIDES = {"to worker": ToWorker, "to front end": ToFrontEnd}
both_sides = pytest.mark.parametrize("side", SIDES)


def reader(side: str) -> FrameReader[Any]:
    return FrameReader(SIDES[side])  # type: ignore[arg-type]  # a union of types


def read(side: str, data: bytes, cuts: list[int]) -> tuple[list[Any], bool]:
    """The messages, and whether the reader gave up. Anything but FrameError fails the test."""
    frames, received, begin = reader(side), [], 0
    try:
        for end in [*sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]:
            received.extend(frames.feed(data[begin:end]))
            begin = end
    except FrameError:
        return received, True
    return received, False


def test_every_message_type_is_made_up_here() -> None:
    assert set(MESSAGES) == {*get_args(ToWorker), *get_args(ToFrontEnd)}


CUTS = st.lists(st.integers(0, 4096), max_size=8)


@both_sides
@given(data=st.data(), cuts=CUTS)
def test_every_message_cut_anywhere_comes_out_whole(side: str, data: st.DataObject, cuts: list[int]) -> None:
    kinds = st.one_of([MESSAGES[kind] for kind in get_args(SIDES[side])])
    sent = data.draw(st.lists(kinds, min_size=1, max_size=5))
    writer = FrameWriter()
    assert read(side, b"".join(map(writer.frame, sent)), cuts) == (sent, False)


@both_sides
@given(data=st.binary(max_size=4096), cuts=CUTS)
def test_where_bytes_are_cut_changes_nothing_of_what_they_say(side: str, data: bytes, cuts: list[int]) -> None:
    assert read(side, data, cuts) == read(side, data, [])


@both_sides
@settings(max_examples=300)
@given(data=st.data(), cuts=CUTS)
def test_damaged_messages_are_messages_or_a_frame_error(side: str, data: st.DataObject, cuts: list[int]) -> None:
    kinds = st.one_of([MESSAGES[kind] for kind in get_args(SIDES[side])])
    writer = FrameWriter()
    whole = bytearray(b"".join(map(writer.frame, data.draw(st.lists(kinds, min_size=1, max_size=3)))))
    for position, value in data.draw(st.lists(st.tuples(st.integers(0, 4096), st.integers(0, 255)), max_size=4)):
        whole[position % len(whole)] = value
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    received, gave_up = read(side, bytes(whole), cuts)
    assert (received, gave_up) == read(side, bytes(whole), [])
    assert all(isinstance(message, get_args(SIDES[side])) for message in received)


@given(message=MESSAGES[Submit] | MESSAGES[Count])
@settings(max_examples=400)
def test_what_a_request_is_made_of_is_checked_by_the_worker_too(message: Any) -> None:
    try:
        request = to_request(message)
    except (FrameError, RequestError):
        return
    assert request.params.max_tokens >= 1


@given(failure=FAILURES, delta=MESSAGES[Delta])
def test_what_a_worker_says_of_a_request_becomes_an_error_of_ours(failure: Failure, delta: Any) -> None:
    assert isinstance(to_error(failure), EdgeLLMError)
    assert from_delta_message(delta).text == delta.text
