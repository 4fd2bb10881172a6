"""Native chunks and responses as the API's values."""

from __future__ import annotations

import pytest
from tests.unit.runtime.scripted_runtime import FinishReason, LLMGenerationResponse, LogprobEntry, StreamChunk

from edgellm.runtime.deltas import finish_reason_name, merge_deltas, split_sound, to_delta, to_output
from edgellm.runtime.outputs import LogprobEntry as Entry
from edgellm.runtime.outputs import StreamDelta


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        (FinishReason.END_ID, "stop"),
        (FinishReason.STOP_WORDS, "stop"),
        (FinishReason.LENGTH, "length"),
        (FinishReason.CANCELLED, "cancelled"),
        (FinishReason.ERROR, "error"),
        (FinishReason.NOT_FINISHED, None),
    ],
)
def test_finish_reasons(reason: FinishReason, name: str | None) -> None:
    assert finish_reason_name(reason) == name
    assert to_delta(StreamChunk(finished=True, reason=reason)).finish_reason == name


def test_negative_counts_are_unknown() -> None:
    delta = to_delta(StreamChunk("a", [1], -1))
    assert (delta.prompt_tokens, delta.cached_tokens, delta.matched_stop) == (None, None, None)
    assert to_delta(StreamChunk("a", [1], 5)).prompt_tokens == 5
    response = LLMGenerationResponse([[1]], ["a"], [FinishReason.LENGTH], [-1])
    assert to_output(response).prompt_tokens is None


def test_an_unfinished_chunk_has_no_reason() -> None:
    assert to_delta(StreamChunk("a", [1], reason=FinishReason.LENGTH)).finish_reason is None


def test_logprobs_keep_exact_bytes_and_show_what_is_no_character() -> None:
    native = LogprobEntry(5, -0.5, b"\xe2\x82")
    delta = to_delta(StreamChunk("", [5], logprobs=[[native]]))
    assert delta.logprobs == [[Entry(5, -0.5, "\ufffd", b"\xe2\x82")]]


def test_a_response_without_text_is_the_empty_text() -> None:
    output = to_output(LLMGenerationResponse([], [], [FinishReason.END_ID], []))
    assert (output.text, output.token_ids, output.prompt_tokens) == ("", [], None)
    assert (output.logprobs, output.tool_calls, output.reasoning) == (None, None, None)
    assert output.finish_reason == "stop"


def test_merged_deltas_say_what_they_said_one_by_one() -> None:
    entry = Entry(1, -1.0, "a", b"a")
    deltas = [
        StreamDelta("a", [1], prompt_tokens=7, cached_tokens=3, logprobs=[[entry]]),
        StreamDelta("b", [2, 3]),
        StreamDelta("", [], finished=True, finish_reason="stop", matched_stop=1),
    ]
    assert merge_deltas(deltas) == StreamDelta(
        "ab", [1, 2, 3], 7, True, "stop", [[entry]], cached_tokens=3, matched_stop=1
    )
    assert merge_deltas(deltas[:1]) is deltas[0]


def test_sound_is_merged_in_order_and_split_without_loss() -> None:
    deltas = [
        StreamDelta(audio_bytes=b"abc", audio_frames=2),
        StreamDelta("text"),
        StreamDelta(audio_bytes=b"de", audio_frames=1, finished=True, finish_reason="stop", prompt_tokens=4),
    ]
    merged = merge_deltas(deltas)
    assert (merged.audio_bytes, merged.audio_frames, merged.text) == (b"abcde", 3, "text")
    for bytes_max in (1, 2, 3, 5, 6):
        pieces = list(split_sound(merged, bytes_max))
        assert all(len(piece.audio_bytes or b"") <= bytes_max for piece in pieces)
        assert merge_deltas(pieces) == merged
        assert [piece.finished for piece in pieces] == [*[False] * (len(pieces) - 1), True]
    assert merge_deltas([StreamDelta("a"), StreamDelta("b")]).audio_bytes is None
    assert list(split_sound(StreamDelta("a"), 1)) == [StreamDelta("a")]
