"""Responses answers: a response object with its items, as a stream of numbered events, or whole."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring as json_text
from typing import Any

from edgellm.api.body_writer import TextFrame
from edgellm.api.error_mapping import described
from edgellm.api.logprobs import TokenLogprobs, chat_logprobs
from edgellm.api.response_prompt import sealed
from edgellm.api.stream_format import HEARTBEAT
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
from edgellm.runtime.outputs import LogprobEntry, StreamDelta

JsonObject = dict[str, Any]
OnEnd = Callable[[JsonObject], None]
"""Called with the response once it is complete, before its end is sent."""

_BEFORE_SEQUENCE_NUMBER = (
    'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","sequence_number":'
)
_AFTER_TEXT = ',"logprobs":[]}\n\n'

_ID_PREFIX = {"message": "msg", "reasoning": "rs", "function_call": "fc"}


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What is known of a response before it is written; ``settings`` are the fields that repeat the request."""

    request_id: str
    created_at: int
    model: str
    settings: JsonObject
    top_logprobs: int | None  # None: log probabilities were not asked for
    seals_reasoning: bool

    @property
    def id(self) -> str:
        return f"resp_{self.request_id}"

    def response(
        self,
        status: str,
        output: Sequence[JsonObject] = (),
        usage: JsonObject | None = None,
        error: JsonObject | None = None,
    ) -> JsonObject:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "error": error,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "model": self.model,
            "output": list(output),
            "usage": usage,
            **self.settings,
        }

    def item(self, kind: str, index: int, status: str, **fields: Any) -> JsonObject:
        return {"id": f"{_ID_PREFIX[kind]}_{self.request_id}_{index}", "type": kind, "status": status, **fields}

    def message(self, index: int, status: str, content: Sequence[JsonObject]) -> JsonObject:
        return self.item("message", index, status, role="assistant", content=list(content))

    def reasoning(self, index: int, status: str, text: str) -> JsonObject:
        content = [{"type": "reasoning_text", "text": text}] if text else []
        sealing = {"encrypted_content": sealed(text)} if self.seals_reasoning and text else {}
        return self.item("reasoning", index, status, summary=[], content=content, **sealing)

    def text_part(self, text: str, logprobs: TokenLogprobs) -> JsonObject:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": self.logprobs(logprobs)}

    def logprobs(self, logprobs: TokenLogprobs) -> list[JsonObject]:
        return [] if self.top_logprobs is None else chat_logprobs(logprobs, self.top_logprobs)


def response_usage(usage: JsonObject) -> JsonObject:
    """From the counts of chat completions."""
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {
            "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"],
            "cache_write_tokens": 0,
        },
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": usage["completion_tokens_details"]["reasoning_tokens"]},
        "total_tokens": usage["total_tokens"],
    }


def whole_response(head: ResponseHead, on_end: OnEnd, choices: Sequence[Choice], usage: JsonObject) -> JsonObject:
    [choice] = choices
    status = _status(choice.finish_reason)
    output: list[JsonObject] = []
    # An answer has at least one item, if only an empty message.
    for index, part in enumerate(choice.parts or [Said(is_reasoning=False)]):
        match part:
            case Call(call_id, name, arguments):
                fields = {"call_id": call_id, "name": name, "arguments": "".join(arguments)}
                output.append(head.item("function_call", index, "completed", **fields))
            case Said(is_reasoning=True):
                output.append(head.reasoning(index, "completed", part.text))
            case _:
                output.append(head.message(index, "completed", [head.text_part(part.text, part.logprobs)]))
    output[-1]["status"] = status
    response = head.response(status, output, response_usage(usage))
    on_end(response)
    return response


class ResponseStream:
    """Items follow one another; one is open at a time, and its parts are all sent before it is done."""

    heartbeat = HEARTBEAT

    def __init__(self, head: ResponseHead, on_end: OnEnd) -> None:
        self._head = head
        self._on_end = on_end
        self._sequence_number = -1
        self._output: list[JsonObject] = []
        self._open: JsonObject | None = None  # the item that is being written
        self._written: list[str] = []  # the pieces of its text or its arguments
        self._logprobs: list[Sequence[LogprobEntry]] = []  # of its text
        self._held_logprobs: list[Sequence[LogprobEntry]] = []  # of tokens whose text is still to come
        self._before_delta = ""
        self._status = "completed"

    def opening(self, prompt_tokens: int) -> bytes:
        response = self._head.response("in_progress")
        events = [self._event(f"response.{name}", response=response) for name in ("created", "in_progress")]
        return "".join(events).encode()

    def delta(self, index: int, delta: StreamDelta) -> str:
        events: list[AnswerEvent] = [TextPiece(delta.text)] if delta.text else []
        if delta.finished:
            events.append(AnswerEnd(delta.finish_reason, delta.matched_stop))
        return self.events(index, events, delta.logprobs)

    def text_frame(self, index: int) -> TextFrame | None:
        if self._head.top_logprobs is not None or self._open is None or self._open["type"] != "message":
            return None
        return TextFrame(_BEFORE_SEQUENCE_NUMBER.encode(), self._numbered_text, _AFTER_TEXT.encode())

    def events(self, index: int, events: Sequence[AnswerEvent], logprobs: TokenLogprobs | None) -> str:
        if logprobs and self._head.top_logprobs is not None:
            self._held_logprobs += logprobs
        return "".join([self._answer_event(event) for event in events])

    def ending(self, usage: JsonObject) -> bytes:
        response = self._head.response(self._status, self._output, response_usage(usage))
        self._on_end(response)
        return self._event(f"response.{self._status}", response=response).encode()

    def failure(self, error: EdgeLLMError) -> bytes:
        _, message, code, _ = described(error)
        closing = self._close("incomplete")
        failed = {"code": "server_error", "message": message, "type": code}
        response = self._head.response("failed", self._output, error=failed)
        return (closing + self._event("response.failed", response=response)).encode()

    def _answer_event(self, event: AnswerEvent) -> str:
        match event:
            case TextPiece(text):
                return self._begin("message") + self._text_delta(text)
            case ReasoningPiece(text):
                self._held_logprobs.clear()
                return self._begin("reasoning") + self._plain_delta("response.reasoning_text.delta", text, 0)
            case CallStart(_, call_id, name):
                self._held_logprobs.clear()
                return self._begin("function_call", call_id=call_id, name=name, arguments="")
            case CallArguments(_, text):
                return self._plain_delta("response.function_call_arguments.delta", text)
            case CallEnd():
                return self._close("completed")
            case AnswerEnd(reason):
                self._status = _status(reason)
                # An answer has at least one item, if only an empty message.
                opening = "" if self._open or self._output else self._begin("message")
                return opening + self._tokens_without_text() + self._close(self._status)

    def _tokens_without_text(self) -> str:
        """Log probabilities of the last tokens of a text, such as those of a stop string that is no part of it."""
        is_text = self._open is not None and self._open["type"] == "message"
        return self._text_delta("") if is_text and self._held_logprobs else ""

    def _begin(self, kind: str, **fields: Any) -> str:
        if self._open is not None and self._open["type"] == kind and kind != "function_call":
            return ""
        closing = self._close("completed")
        index = len(self._output)
        if kind == "message":
            item = self._head.message(index, "in_progress", [])
        elif kind == "reasoning":
            item = self._head.reasoning(index, "in_progress", "")
        else:
            item = self._head.item(kind, index, "in_progress", **fields)
        self._open = item
        self._before_delta = f'"item_id":{json_text(item["id"])},"output_index":{index},"content_index":0,"delta":'
        added = self._event("response.output_item.added", output_index=index, item=item)
        if kind == "function_call":
            return closing + added
        part = self._head.text_part("", []) if kind == "message" else {"type": "reasoning_text", "text": ""}
        return closing + added + self._item_event("response.content_part.added", content_index=0, part=part)

    def _close(self, status: str) -> str:
        item = self._open
        if item is None:
            return ""
        text = "".join(self._written)
        kind = item["type"]
        if kind == "message":
            logprobs = self._head.logprobs(self._logprobs)
            part = self._head.text_part(text, self._logprobs)
            done = self._item_event("response.output_text.done", content_index=0, text=text, logprobs=logprobs)
            done += self._item_event("response.content_part.done", content_index=0, part=part)
            item = self._head.message(len(self._output), status, [part])
        elif kind == "reasoning":
            part = {"type": "reasoning_text", "text": text}
            done = self._item_event("response.reasoning_text.done", content_index=0, text=text)
            done += self._item_event("response.content_part.done", content_index=0, part=part)
            item = self._head.reasoning(len(self._output), status, text)
        else:
            done = self._item_event("response.function_call_arguments.done", name=item["name"], arguments=text)
            item = {**item, "status": status, "arguments": text}
        done += self._event("response.output_item.done", output_index=len(self._output), item=item)
        self._output.append(item)
        self._open = None
        self._written.clear()
        self._logprobs = []
        return done

    def _text_delta(self, text: str) -> str:
        event = _BEFORE_SEQUENCE_NUMBER + self._numbered_text(text)
        if not self._held_logprobs:
            return event + _AFTER_TEXT
        logprobs = _compact(self._head.logprobs(self._held_logprobs))
        self._logprobs += self._held_logprobs
        self._held_logprobs = []
        return f'{event},"logprobs":{logprobs}}}\n\n'

    def _numbered_text(self, text: str) -> str:
        self._written.append(text)
        self._sequence_number += 1
        return f"{self._sequence_number},{self._before_delta}{json_text(text)}"

    def _plain_delta(self, kind: str, text: str, content_index: int | None = None) -> str:
        self._written.append(text)
        place = {} if content_index is None else {"content_index": content_index}
        return self._item_event(kind, **place, delta=text)

    def _item_event(self, kind: str, **fields: Any) -> str:
        assert self._open is not None  # noqa: S101  # every caller has an item open
        return self._event(kind, item_id=self._open["id"], output_index=len(self._output), **fields)

    def _event(self, kind: str, **fields: Any) -> str:
        self._sequence_number += 1
        data = _compact({"type": kind, "sequence_number": self._sequence_number, **fields})
        return f"event: {kind}\ndata: {data}\n\n"


def _status(finish_reason: str | None) -> str:
    return "incomplete" if finish_reason == "length" else "completed"


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
