"""Whole formats: the answer of a request that does not stream, gathered from its deltas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from edgellm.api.logprobs import CompletionLogprobs, TokenLogprobs, chat_logprobs
from edgellm.api.stream_format import StreamHead
from edgellm.parsing.answer_events import AnswerEnd, AnswerEvent, CallArguments, CallStart, ReasoningPiece, TextPiece
from edgellm.runtime.outputs import LogprobEntry, StreamDelta


@dataclass(slots=True)
class Call:
    """A tool call as it grows; ``arguments`` join to the text of a JSON object."""

    id: str
    name: str
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Choice:
    """One choice as it grows. What its deltas say in a row equals what they say as a stream."""

    texts: list[str] = field(default_factory=list)
    reasonings: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    logprobs: list[Sequence[LogprobEntry]] = field(default_factory=list)
    finish_reason: str | None = None
    matched_stop: int | None = None
    embedding: bytes | None = None

    def take(self, delta: StreamDelta) -> None:
        if delta.text:
            self.texts.append(delta.text)
        if delta.logprobs:
            self.logprobs += delta.logprobs
        if delta.finished:
            self.finish_reason = delta.finish_reason
            self.matched_stop = delta.matched_stop
            self.embedding = delta.embedding

    def take_events(self, events: Sequence[AnswerEvent], logprobs: TokenLogprobs | None) -> None:
        if logprobs:
            self.logprobs += logprobs
        for event in events:
            match event:
                case TextPiece(text):
                    self.texts.append(text)
                case ReasoningPiece(text):
                    self.reasonings.append(text)
                case CallStart(_, call_id, name):
                    self.calls.append(Call(call_id, name))
                case CallArguments(index, text):
                    self.calls[index].arguments.append(text)
                case AnswerEnd(reason, matched_stop):
                    self.finish_reason = reason
                    self.matched_stop = matched_stop

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def reasoning(self) -> str:
        return "".join(self.reasonings)


def chat_answer(
    head: StreamHead, top_logprobs: int | None, choices: Sequence[Choice], usage: dict[str, Any]
) -> dict[str, Any]:
    return {
        **head.as_object(),
        "choices": [
            {
                "index": index,
                "message": _message(choice),
                "logprobs": None
                if top_logprobs is None
                else {"content": chat_logprobs(choice.logprobs, top_logprobs), "refusal": None},
                "finish_reason": choice.finish_reason,
            }
            for index, choice in enumerate(choices)
        ],
        "usage": usage,
    }


def _message(choice: Choice) -> dict[str, Any]:
    """Content is null only where something else was said instead of it; optional parts are absent, not null."""
    said = choice.text or not (choice.calls or choice.reasonings)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": choice.text if said else None,
        "refusal": None,
        "annotations": [],
    }
    if choice.reasonings:
        message["reasoning_content"] = choice.reasoning
    if choice.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": "".join(call.arguments)},
            }
            for call in choice.calls
        ]
    return message


def best_choices(choices: Sequence[Choice], made: int, wanted: int) -> list[Choice]:
    """Of the ``made`` answers to each prompt the ``wanted`` ones whose tokens were likeliest on average, best first."""
    if made == wanted:
        return list(choices)
    best: list[Choice] = []
    for first in range(0, len(choices), made):
        best += sorted(choices[first : first + made], key=_mean_logprob, reverse=True)[:wanted]
    return best


def _mean_logprob(choice: Choice) -> float:
    logprobs = [entries[0].logprob for entries in choice.logprobs]
    return sum(logprobs) / len(logprobs) if logprobs else -math.inf


def completion_answer(
    head: StreamHead, top_logprobs: int | None, choices: Sequence[Choice], usage: dict[str, Any]
) -> dict[str, Any]:
    return {
        **head.as_object(),
        "choices": [
            {
                "index": index,
                "text": choice.text,
                "logprobs": None if top_logprobs is None else CompletionLogprobs(top_logprobs).take(choice.logprobs),
                "finish_reason": choice.finish_reason,
            }
            for index, choice in enumerate(choices)
        ],
        "usage": usage,
    }
