"""Anthropic answers: a message as a stream of events, or whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring as json_text
from typing import Any

from pydantic_core import from_json

from edgellm.api.anthropic_errors import anthropic_error_object
from edgellm.api.body_writer import TextFrame
from edgellm.api.error_mapping import described
from edgellm.api.logprobs import TokenLogprobs
from edgellm.api.whole_format import Call, Choice, Said
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
from edgellm.runtime.outputs import StreamDelta

PING = b'event: ping\ndata: {"type":"ping"}\n\n'

_AFTER_TEXT = "}}\n\n"

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def named_event(kind: str, fields: dict[str, Any]) -> str:
    body = json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {kind}\ndata: {body}\n\n"


@dataclass(frozen=True, slots=True)
class MessageHead:
    """What is known of a message before it is written. ``shows_thinking`` False leaves the text of thinking out."""

    request_id: str
    model: str
    stop_sequences: Sequence[str]
    shows_thinking: bool = True

    def message(self, content: list[dict[str, Any]], stop: dict[str, Any], usage: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": f"msg_{self.request_id}",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            **stop,
            "usage": usage,
        }

    def stop(self, reason: str | None, matched_stop: int | None) -> dict[str, Any]:
        if reason == "stop" and matched_stop is not None and matched_stop < len(self.stop_sequences):
            return {"stop_reason": "stop_sequence", "stop_sequence": self.stop_sequences[matched_stop]}
        return {"stop_reason": _STOP_REASONS.get(reason or ""), "stop_sequence": None}


def anthropic_usage(usage: dict[str, Any]) -> dict[str, Any]:
    """From OpenAI's counts; ``input_tokens`` are those that were not taken from the cache."""
    cached_tokens = usage["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": usage["prompt_tokens"] - cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached_tokens,
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"thinking_tokens": usage["completion_tokens_details"]["reasoning_tokens"]},
    }


def anthropic_answer(head: MessageHead, choices: Sequence[Choice], usage: dict[str, Any]) -> dict[str, Any]:
    [choice] = choices
    content = [_block(part, shows_thinking=head.shows_thinking) for part in choice.parts]
    return head.message(content, head.stop(choice.finish_reason, choice.matched_stop), anthropic_usage(usage))


def _block(part: Said | Call, *, shows_thinking: bool) -> dict[str, Any]:
    match part:
        case Call(call_id, name, arguments):
            return {"type": "tool_use", "id": call_id, "name": name, "input": _input("".join(arguments))}
        case Said(is_reasoning=True):
            shown = part.text if shows_thinking else ""
            return {"type": "thinking", "thinking": shown, "signature": _signature(part.text)}
        case _:
            return {"type": "text", "text": part.text, "citations": None}


class AnthropicStream:
    """One block is open at a time; a piece of another kind closes it and opens its own."""

    heartbeat = PING

    def __init__(self, head: MessageHead) -> None:
        self._head = head
        self._kind = ""  # of the open block; "" when none is
        self._index = -1
        self._before_text = ""
        self._thought: list[str] = []
        self._stop: dict[str, Any] = {}

    def opening(self, prompt_tokens: int) -> bytes:
        usage = {
            "input_tokens": prompt_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 0,
        }
        message = self._head.message([], {"stop_reason": None, "stop_sequence": None}, usage)
        return named_event("message_start", {"message": message}).encode() + PING

    def delta(self, index: int, delta: StreamDelta) -> str:
        events: list[AnswerEvent] = [TextPiece(delta.text)] if delta.text else []
        if delta.finished:
            events.append(AnswerEnd(delta.finish_reason, delta.matched_stop))
        return self.events(index, events, delta.logprobs)

    def text_frame(self, index: int) -> TextFrame | None:
        if self._kind != "text":
            return None
        return TextFrame(self._before_text.encode(), json_text, _AFTER_TEXT.encode())

    def events(self, index: int, events: Sequence[AnswerEvent], logprobs: TokenLogprobs | None) -> str:
        return "".join([self._event(event) for event in events])

    def ending(self, usage: dict[str, Any]) -> bytes:
        fields = {"delta": self._stop, "usage": anthropic_usage(usage)}
        return (named_event("message_delta", fields) + named_event("message_stop", {})).encode()

    def failure(self, error: EdgeLLMError) -> bytes:
        status, message, code, param = described(error)
        fields = anthropic_error_object(status, message, code, param, self._head.request_id)
        return (self._close() + named_event("error", {key: fields[key] for key in ("error", "request_id")})).encode()

    def _event(self, event: AnswerEvent) -> str:
        match event:
            case TextPiece(text):
                opening = "" if self._kind == "text" else self._open("text", {"text": ""})
                return f"{opening}{self._before_text}{json_text(text)}{_AFTER_TEXT}"
            case ReasoningPiece(text):
                opening = "" if self._kind == "thinking" else self._open("thinking", {"thinking": "", "signature": ""})
                self._thought.append(text)
                if not self._head.shows_thinking:
                    return opening
                return opening + self._delta("thinking_delta", {"thinking": text})
            case CallStart(_, call_id, name):
                return self._open("tool_use", {"id": call_id, "name": name, "input": {}})
            case CallArguments(_, text):
                return self._delta("input_json_delta", {"partial_json": text})
            case CallEnd():
                return self._close()
            case AnswerEnd(reason, matched_stop):
                self._stop = self._head.stop(reason, matched_stop)
                return self._close()

    def _open(self, kind: str, fields: dict[str, Any]) -> str:
        closing = self._close()
        self._kind = kind
        self._index += 1
        if kind == "text":
            self._before_text = (
                f'event: content_block_delta\ndata: {{"type":"content_block_delta","index":{self._index},'
                '"delta":{"type":"text_delta","text":'
            )
        block = {"index": self._index, "content_block": {"type": kind, **fields}}
        return closing + named_event("content_block_start", block)

    def _close(self) -> str:
        if not self._kind:
            return ""
        signed = ""
        if self._kind == "thinking":
            signed = self._delta("signature_delta", {"signature": _signature("".join(self._thought))})
            self._thought.clear()
        self._kind = ""
        return signed + named_event("content_block_stop", {"index": self._index})

    def _delta(self, kind: str, fields: dict[str, Any]) -> str:
        return named_event("content_block_delta", {"index": self._index, "delta": {"type": kind, **fields}})


def _signature(thinking: str) -> str:
    """Clients keep and return it unread. It is a digest: this server believes whatever reasoning it is shown."""
    return hashlib.sha256(thinking.encode()).hexdigest()


def _input(arguments: str) -> Any:
    """The arguments as an object; of an answer that was cut off, what there is of it."""
    return from_json(arguments, allow_partial="trailing-strings") if arguments else {}
