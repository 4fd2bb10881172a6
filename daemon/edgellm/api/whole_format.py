"""Whole formats: the answer of a request that does not stream, gathered from its deltas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from edgellm.api.logprobs import CompletionLogprobs, chat_logprobs
from edgellm.runtime.outputs import LogprobEntry, StreamDelta


@dataclass(slots=True)
class Choice:
    """One choice as it grows. What its deltas say in a row equals what they say as a stream."""

    texts: list[str] = field(default_factory=list)
    logprobs: list[list[LogprobEntry]] = field(default_factory=list)
    finish_reason: str | None = None

    def take(self, delta: StreamDelta) -> None:
        if delta.text:
            self.texts.append(delta.text)
        if delta.logprobs:
            self.logprobs += delta.logprobs
        if delta.finished:
            self.finish_reason = delta.finish_reason

    @property
    def text(self) -> str:
        return "".join(self.texts)


def chat_choices(choices: Sequence[Choice], top_logprobs: int | None) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None, "annotations": []},
            "logprobs": None
            if top_logprobs is None
            else {"content": chat_logprobs(choice.logprobs, top_logprobs), "refusal": None},
            "finish_reason": choice.finish_reason,
        }
        for index, choice in enumerate(choices)
    ]


def completion_choices(choices: Sequence[Choice], top_logprobs: int | None) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "text": choice.text,
            "logprobs": None if top_logprobs is None else CompletionLogprobs(top_logprobs).take(choice.logprobs),
            "finish_reason": choice.finish_reason,
        }
        for index, choice in enumerate(choices)
    ]
