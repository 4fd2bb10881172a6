"""Stream formats: the bytes of server-sent events. What does not change within a stream is serialised once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from json.encoder import encode_basestring as json_text
from typing import Any, Protocol

from edgellm.api.logprobs import CompletionLogprobs, chat_logprobs
from edgellm.runtime.outputs import StreamDelta

DONE = b"data: [DONE]\n\n"
HEARTBEAT = b": waiting for the first token\n\n"


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


@dataclass(frozen=True, slots=True)
class StreamHead:
    """What all chunks of a stream share."""

    id: str
    object: str
    created: int
    model: str

    def as_object(self) -> dict[str, Any]:
        return {"id": self.id, "object": self.object, "created": self.created, "model": self.model}

    def opening(self) -> str:
        """Up to and including the bracket that opens ``choices``."""
        return "data: " + json.dumps(self.as_object(), ensure_ascii=False, separators=(",", ":"))[:-1] + ',"choices":['


class StreamFormat(Protocol):
    def delta(self, index: int, delta: StreamDelta) -> str:
        """The events for a delta of a choice; the finished one brings the finish_reason."""
        ...

    def usage(self, usage: dict[str, Any]) -> bytes: ...


class ChatStreamFormat:
    """Chunks of chat completions: the role comes with the first content of a choice."""

    def __init__(self, head: StreamHead, choices: int, top_logprobs: int | None, with_usage: bool) -> None:
        self._head = head
        self._top_logprobs = top_logprobs
        opening = head.opening()
        self._end = '],"usage":null}\n\n' if with_usage else "]}\n\n"
        self._before_text = [f'{opening}{{"index":{index},"delta":{{"content":' for index in range(choices)]
        self._before_first = [
            f'{opening}{{"index":{index},"delta":{{"role":"assistant","content":' for index in range(choices)
        ]
        self._before_last = [f'{opening}{{"index":{index},"delta":{{}},"logprobs":null,' for index in range(choices)]
        self._after_text = '},"logprobs":null,"finish_reason":null}' + self._end
        self._started = [False] * choices

    def delta(self, index: int, delta: StreamDelta) -> str:
        has_content = bool(delta.text or delta.logprobs)
        if not has_content and not delta.finished:
            return ""
        events = ""
        if has_content or not self._started[index]:
            before = self._before_text if self._started[index] else self._before_first
            self._started[index] = True
            events = before[index] + json_text(delta.text) + self._after(delta)
        if delta.finished:
            events += f'{self._before_last[index]}"finish_reason":{json.dumps(delta.finish_reason)}}}{self._end}'
        return events

    def _after(self, delta: StreamDelta) -> str:
        if self._top_logprobs is None or not delta.logprobs:
            return self._after_text
        content = json.dumps(chat_logprobs(delta.logprobs, self._top_logprobs), ensure_ascii=False)
        return f'}},"logprobs":{{"content":{content},"refusal":null}},"finish_reason":null}}{self._end}'

    def usage(self, usage: dict[str, Any]) -> bytes:
        return event({**self._head.as_object(), "choices": [], "usage": usage})


class CompletionStreamFormat:
    """Chunks of text completions: the last one carries the finish_reason beside what text is left."""

    def __init__(self, head: StreamHead, choices: int, top_logprobs: int | None, with_usage: bool) -> None:
        self._head = head
        opening = head.opening()
        self._end = '],"usage":null}\n\n' if with_usage else "]}\n\n"
        self._before_text = [f'{opening}{{"index":{index},"text":' for index in range(choices)]
        self._after_text = ',"logprobs":null,"finish_reason":null}' + self._end
        self._logprobs = None if top_logprobs is None else [CompletionLogprobs(top_logprobs) for _ in range(choices)]

    def delta(self, index: int, delta: StreamDelta) -> str:
        if not (delta.text or delta.logprobs or delta.finished):
            return ""
        before = self._before_text[index] + json_text(delta.text)
        if not delta.finished and not delta.logprobs:
            return before + self._after_text
        logprobs = self._logprobs[index].take(delta.logprobs) if self._logprobs and delta.logprobs else None
        reason = json.dumps(delta.finish_reason if delta.finished else None)
        return f'{before},"logprobs":{json.dumps(logprobs, ensure_ascii=False)},"finish_reason":{reason}}}{self._end}'

    def usage(self, usage: dict[str, Any]) -> bytes:
        return event({**self._head.as_object(), "choices": [], "usage": usage})
