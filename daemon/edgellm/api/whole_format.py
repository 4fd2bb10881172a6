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
class Said:
    """Text, or reasoning, up to something of another kind; ``logprobs`` are those of a text's tokens."""

    is_reasoning: bool
    pieces: list[str] = field(default_factory=list)
    logprobs: list[Sequence[LogprobEntry]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(slots=True)
class Choice:
    """One choice as it grows. What its deltas say in a row equals what they say as a stream.

    ``parts`` are in the order in which they were written; ``calls`` are those of them that are calls.
    """

    parts: list[Said | Call] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    logprobs: list[Sequence[LogprobEntry]] = field(default_factory=list)
    finish_reason: str | None = None
    matched_stop: int | None = None
    embedding: bytes | None = None
    sounds: list[bytes] = field(default_factory=list)
    _held_logprobs: list[Sequence[LogprobEntry]] = field(default_factory=list)  # of tokens whose text is still to come

    def take_sound(self, delta: StreamDelta) -> None:
        if delta.audio_bytes:
            self.sounds.append(delta.audio_bytes)

    def take(self, delta: StreamDelta) -> None:
        self._take_logprobs(delta.logprobs)
        if delta.text:
            self._say(delta.text)
        if delta.finished:
            self._end(delta.finish_reason, delta.matched_stop)
            self.embedding = delta.embedding

    def take_events(self, events: Sequence[AnswerEvent], logprobs: TokenLogprobs | None) -> None:
        self._take_logprobs(logprobs)
        for event in events:
            match event:
                case TextPiece(text):
                    self._say(text)
                case ReasoningPiece(text):
                    self._held_logprobs.clear()
                    self._said(is_reasoning=True).pieces.append(text)
                case CallStart(_, call_id, name):
                    self._held_logprobs.clear()
                    self.calls.append(Call(call_id, name))
                    self.parts.append(self.calls[-1])
                case CallArguments(index, text):
                    self.calls[index].arguments.append(text)
                case AnswerEnd(reason, matched_stop):
                    self._end(reason, matched_stop)

    @property
    def text(self) -> str:
        return "".join([part.text for part in self.parts if isinstance(part, Said) and not part.is_reasoning])

    @property
    def reasoning(self) -> str:
        return "".join([part.text for part in self.parts if isinstance(part, Said) and part.is_reasoning])

    def _take_logprobs(self, logprobs: TokenLogprobs | None) -> None:
        if logprobs:
            self.logprobs += logprobs
            self._held_logprobs += logprobs

    def _say(self, text: str) -> None:
        said = self._said(is_reasoning=False)
        said.pieces.append(text)
        said.logprobs += self._held_logprobs
        self._held_logprobs.clear()

    def _said(self, *, is_reasoning: bool) -> Said:
        last = self.parts[-1] if self.parts else None
        if isinstance(last, Said) and last.is_reasoning == is_reasoning:
            return last
        said = Said(is_reasoning)
        self.parts.append(said)
        return said

    def _end(self, reason: str | None, matched_stop: int | None) -> None:
        self.finish_reason = reason
        self.matched_stop = matched_stop
        if self._held_logprobs and not self.parts:
            self._said(is_reasoning=False)
        last = self.parts[-1] if self.parts else None
        if isinstance(last, Said) and not last.is_reasoning:
            last.logprobs += self._held_logprobs


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
    text, reasoning = choice.text, choice.reasoning
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text if text or not (choice.calls or reasoning) else None,
        "refusal": None,
        "annotations": [],
    }
    if reasoning:
        message["reasoning_content"] = reasoning
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
