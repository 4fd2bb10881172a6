"""Stream formats: the bytes of server-sent events. What does not change within a stream is serialised once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring as json_text
from typing import Any, Protocol, runtime_checkable

from edgellm.api.body_writer import TextFrame
from edgellm.api.error_mapping import stream_error
from edgellm.api.logprobs import CompletionLogprobs, TokenLogprobs, chat_logprobs
from edgellm.errors import EdgeLLMError
from edgellm.parsing.answer_events import (
    AnswerEnd,
    AnswerEvent,
    CallArguments,
    CallEnd,
    CallStart,
    ReasoningPiece,
    TextPiece,
)
from edgellm.runtime.outputs import LogprobEntry, StreamDelta

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
    """One protocol's stream of answers whose text is left as it is.

    ``heartbeat`` is what is sent from time to time until the first token comes.
    """

    @property
    def heartbeat(self) -> bytes: ...

    def opening(self, prompt_tokens: int) -> bytes:
        """What is sent as soon as the request was accepted; 0 ``prompt_tokens`` are not known yet."""
        ...

    def delta(self, index: int, delta: StreamDelta) -> str:
        """What is sent for a delta of a choice; the finished one ends the choice."""
        ...

    def text_frame(self, index: int) -> TextFrame | None:
        """What is sent for deltas that are text alone, from now until the choice ends; None as long as they differ."""
        ...

    def ending(self, usage: dict[str, Any]) -> bytes:
        """What is sent when every choice has ended."""
        ...

    def failure(self, error: EdgeLLMError) -> bytes:
        """What is sent when the generation failed: the last thing in the stream."""
        ...


@runtime_checkable
class AnswerStreamFormat(StreamFormat, Protocol):
    """One that can tell the parts of an answer apart, too."""

    def events(self, index: int, events: Sequence[AnswerEvent], logprobs: TokenLogprobs | None) -> str:
        """What is sent for the events of a choice; ``logprobs`` are those of the tokens that led to them."""
        ...


@runtime_checkable
class SoundStreamFormat(StreamFormat, Protocol):
    """One of answers that are said, too."""

    def sound(self, index: int, data: bytes) -> str:
        """What is sent for sound of a choice."""
        ...


class _OpenAiStream:
    """The beginning and the ends that both kinds of completions have."""

    heartbeat = HEARTBEAT

    def __init__(self, head: StreamHead, with_usage: bool) -> None:
        self._head = head
        self._with_usage = with_usage
        self._end = '],"usage":null}\n\n' if with_usage else "]}\n\n"

    def opening(self, prompt_tokens: int) -> bytes:
        return b""

    def ending(self, usage: dict[str, Any]) -> bytes:
        if not self._with_usage:
            return DONE
        return event({**self._head.as_object(), "choices": [], "usage": usage}) + DONE

    def failure(self, error: EdgeLLMError) -> bytes:
        return event(stream_error(error))


class ChatStreamFormat(_OpenAiStream):
    """Chunks of chat completions: the role comes with the first content of a choice."""

    def __init__(self, head: StreamHead, choices: int, top_logprobs: int | None, with_usage: bool) -> None:
        super().__init__(head, with_usage)
        self._top_logprobs = top_logprobs
        opening = head.opening()
        self._before_delta = [f'{opening}{{"index":{index},"delta":{{' for index in range(choices)]
        self._before_text = [f'{before}"content":' for before in self._before_delta]
        self._before_first = [f'{before}"role":"assistant","content":' for before in self._before_delta]
        self._before_last = [f'{before}}},"logprobs":null,' for before in self._before_delta]
        self._after_text = '},"logprobs":null,"finish_reason":null}' + self._end
        self._started = [False] * choices
        self._held_logprobs: list[list[Sequence[LogprobEntry]]] = [[] for _ in range(choices)]

    def delta(self, index: int, delta: StreamDelta) -> str:
        has_content = bool(delta.text or delta.logprobs)
        if not has_content and not delta.finished:
            return ""
        events = ""
        if has_content or not self._started[index]:
            before = self._before_text if self._started[index] else self._before_first
            self._started[index] = True
            events = before[index] + json_text(delta.text) + self._after(delta.logprobs)
        if delta.finished:
            events += self._last(index, delta.finish_reason)
        return events

    def text_frame(self, index: int) -> TextFrame | None:
        if self._top_logprobs is not None or not self._started[index]:
            return None
        return TextFrame(self._before_text[index].encode(), json_text, self._after_text.encode())

    def events(self, index: int, events: Sequence[AnswerEvent], logprobs: TokenLogprobs | None) -> str:
        if logprobs:
            self._held_logprobs[index] += logprobs
        return "".join([self._event(index, event) for event in events])

    def _event(self, index: int, event: AnswerEvent) -> str:
        match event:
            case TextPiece(text):
                if self._started[index] and not self._held_logprobs[index]:
                    return self._before_text[index] + json_text(text) + self._after_text
                return self._chunk(index, f'"content":{json_text(text)}')
            case ReasoningPiece(text):
                return self._chunk(index, f'"reasoning_content":{json_text(text)}')
            case CallStart(number, call_id, name):
                nothing_said = "" if self._started[index] else '"content":null,'
                function = f'{{"name":{json_text(name)},"arguments":""}}'
                call = f'{{"index":{number},"id":{json_text(call_id)},"type":"function","function":{function}}}'
                return self._chunk(index, f'{nothing_said}"tool_calls":[{call}]')
            case CallArguments(number, text):
                call = f'{{"index":{number},"function":{{"arguments":{json_text(text)}}}}}'
                return self._chunk(index, f'"tool_calls":[{call}]')
            case CallEnd():
                return ""
            case AnswerEnd(reason):
                needs_chunk = self._held_logprobs[index] or not self._started[index]
                return (self._chunk(index, '"content":""') if needs_chunk else "") + self._last(index, reason)

    def _chunk(self, index: int, fields: str) -> str:
        role = "" if self._started[index] else '"role":"assistant",'
        self._started[index] = True
        logprobs, self._held_logprobs[index] = self._held_logprobs[index], []
        return f"{self._before_delta[index]}{role}{fields}{self._after(logprobs)}"

    def _last(self, index: int, reason: str | None) -> str:
        return f'{self._before_last[index]}"finish_reason":{json.dumps(reason)}}}{self._end}'

    def _after(self, logprobs: TokenLogprobs | None) -> str:
        if self._top_logprobs is None or not logprobs:
            return self._after_text
        content = json.dumps(chat_logprobs(logprobs, self._top_logprobs), ensure_ascii=False)
        return f'}},"logprobs":{{"content":{content},"refusal":null}},"finish_reason":null}}{self._end}'


class CompletionStreamFormat(_OpenAiStream):
    """Chunks of text completions: the last one carries the finish_reason beside what text is left."""

    def __init__(self, head: StreamHead, choices: int, top_logprobs: int | None, with_usage: bool) -> None:
        super().__init__(head, with_usage)
        opening = head.opening()
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

    def text_frame(self, index: int) -> TextFrame | None:
        if self._logprobs is not None:
            return None
        return TextFrame(self._before_text[index].encode(), json_text, self._after_text.encode())
