"""Answer events in the words of chat completions: as a stream and whole, they say the same."""

from __future__ import annotations

import json
from typing import Any

from edgellm.api.stream_format import ChatStreamFormat, StreamHead
from edgellm.api.whole_format import Choice, chat_answer
from edgellm.parsing.answer_events import (
    AnswerEnd,
    AnswerEvent,
    CallArguments,
    CallEnd,
    CallStart,
    ReasoningPiece,
    TextPiece,
)
from edgellm.runtime.outputs import LogprobEntry

HEAD = StreamHead("chatcmpl-1", "chat.completion.chunk", 1, "tiny")
EVENTS: list[AnswerEvent] = [
    ReasoningPiece("let me"),
    ReasoningPiece(" see"),
    TextPiece("I look."),
    CallStart(0, "call_a", 'get "it"'),
    CallArguments(0, '{"city":'),
    CallArguments(0, '"Bäle"}'),
    CallEnd(0),
    CallStart(1, "call_b", "stop"),
    CallArguments(1, "{}"),
    CallEnd(1),
    AnswerEnd("tool_calls"),
]
ENTRY = [LogprobEntry(5, -0.5, "a", b"a")]


def _chunks(events: list[AnswerEvent], logprobs: Any = None) -> list[dict[str, Any]]:
    stream = ChatStreamFormat(HEAD, 1, 0 if logprobs else None, with_usage=False)
    text = "".join(stream.events(0, [event], logprobs) for event in events)
    return [json.loads(line[6:])["choices"][0] for line in text.split("\n\n") if line]


def test_reasoning_text_and_calls_come_in_chunks_of_their_own() -> None:
    chunks = _chunks(EVENTS)
    assert [chunk["delta"] for chunk in chunks] == [
        {"role": "assistant", "reasoning_content": "let me"},
        {"reasoning_content": " see"},
        {"content": "I look."},
        {
            "tool_calls": [
                {"index": 0, "id": "call_a", "type": "function", "function": {"name": 'get "it"', "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"Bäle"}'}}]},
        {
            "tool_calls": [
                {"index": 1, "id": "call_b", "type": "function", "function": {"name": "stop", "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]},
        {},
    ]
    assert [chunk["finish_reason"] for chunk in chunks] == [None] * 8 + ["tool_calls"]


def test_an_answer_that_is_only_a_call_has_no_content() -> None:
    first, *_ = _chunks([CallStart(0, "a", "f"), AnswerEnd("tool_calls")])
    assert first["delta"]["role"] == "assistant"
    assert first["delta"]["content"] is None


def test_an_answer_of_nothing_has_a_role_and_an_end() -> None:
    assert [chunk["delta"] for chunk in _chunks([AnswerEnd("stop")])] == [{"role": "assistant", "content": ""}, {}]


def test_logprobs_wait_for_the_next_chunk_and_none_is_lost() -> None:
    stream = ChatStreamFormat(HEAD, 1, 0, with_usage=False)
    text = stream.events(0, [], [ENTRY]) + stream.events(0, [TextPiece("a")], [ENTRY])
    text += stream.events(0, [AnswerEnd("stop")], [ENTRY])
    chunks = [json.loads(line[6:])["choices"][0] for line in text.split("\n\n") if line]
    counts = [len((chunk["logprobs"] or {"content": []})["content"]) for chunk in chunks]
    assert counts == [2, 1, 0]


def test_a_whole_answer_says_what_the_stream_says() -> None:
    choice = Choice()
    choice.take_events(EVENTS, [ENTRY])
    answer = chat_answer(HEAD, 0, [choice], {"prompt_tokens": 1})
    [told] = answer["choices"]
    assert told["finish_reason"] == "tool_calls"
    assert len(told["logprobs"]["content"]) == 1
    message = told["message"]
    assert (message["content"], message["reasoning_content"]) == ("I look.", "let me see")
    assert [(call["id"], call["function"]) for call in message["tool_calls"]] == [
        ("call_a", {"name": 'get "it"', "arguments": '{"city":"Bäle"}'}),
        ("call_b", {"name": "stop", "arguments": "{}"}),
    ]


def test_content_is_null_only_where_something_else_was_said() -> None:
    call, silence = Choice(), Choice()
    call.take_events([CallStart(0, "a", "f"), CallArguments(0, "{}"), CallEnd(0), AnswerEnd("tool_calls")], None)
    silence.take_events([AnswerEnd("stop")], None)
    told = [entry["message"] for entry in chat_answer(HEAD, None, [call, silence], {})["choices"]]
    assert [message["content"] for message in told] == [None, ""]
    assert "tool_calls" not in told[1]
    assert "reasoning_content" not in told[1]
