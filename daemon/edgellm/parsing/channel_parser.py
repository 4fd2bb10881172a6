"""ChannelParser: answers written as messages with headers, which say whom a message is for.

Muse-Glimmer: `` to=self<|message|>…<|eom|><|start|>assistant to=user<|message|>…<|eot|>``
gpt-oss: ``<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…<|return|>``, with
calls as ``<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>``.

The prompt ends with the beginning of the first header. What does not look like one is text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from edgellm.parsing.answer_events import ParserEvent, ReasoningPiece, TextPiece
from edgellm.parsing.held_text import MAX_HELD_SPACE_CHARACTERS, Marks
from edgellm.parsing.reasoning_state import ReasoningState
from edgellm.parsing.tool_call_values import CallCounter, Tools, calls_of_json

MAX_HEADER_CHARACTERS = 256

_MESSAGE = "<|message|>"
_START = "<|start|>"
_GPT_OSS_RECIPIENT = re.compile(r"to=functions\.([^\s<]+)")


class MessageKind(Enum):
    TEXT = auto()
    REASONING = auto()
    CALL = auto()


@dataclass(frozen=True, slots=True)
class ChannelSyntax:
    """``header_starts``: how the first header may begin. ``classify`` gives a header's kind and the tool it calls."""

    header_starts: tuple[str, ...]
    ends: tuple[str, ...]
    classify: Callable[[str], tuple[MessageKind, str]]


def muse_channels() -> ChannelSyntax:
    def classify(header: str) -> tuple[MessageKind, str]:
        return (MessageKind.REASONING if header.rstrip().endswith("to=self") else MessageKind.TEXT), ""

    return ChannelSyntax((" to=",), ("<|eom|>", "<|eot|>"), classify)


def gpt_oss_channels() -> ChannelSyntax:
    def classify(header: str) -> tuple[MessageKind, str]:
        recipient = _GPT_OSS_RECIPIENT.search(header)
        if recipient is not None:
            return MessageKind.CALL, recipient[1]
        return (MessageKind.REASONING if "<|channel|>analysis" in header else MessageKind.TEXT), ""

    return ChannelSyntax(("<|channel|>", " to="), ("<|end|>", "<|return|>", "<|call|>"), classify)


class ChannelParser:
    """Calls are looked for only where ``tools`` are given; a call that is none of them stays text, header and all."""

    def __init__(
        self,
        syntax: ChannelSyntax,
        starts_inside: bool = False,
        tools: Tools | None = None,
        calls: CallCounter | None = None,
    ) -> None:
        self._syntax = syntax
        self._tools = tools or {}
        self._calls = calls or CallCounter()
        self._marks = Marks([*syntax.ends, _START])
        self._rest = ""
        self._header = ""  # of the message we are in
        self._body: list[str] = []  # of a call
        self._kind = MessageKind.REASONING
        self._tool = ""
        self._step = self._in_body if starts_inside else self._in_first_header
        self._seen_text = False

    @property
    def state(self) -> ReasoningState:
        if self._step == self._in_body and self._kind is MessageKind.REASONING:
            return ReasoningState.INSIDE
        return ReasoningState.AFTER if self._seen_text else ReasoningState.BEFORE

    def feed(self, text: str) -> list[ParserEvent]:
        self._rest += text
        events: list[ParserEvent] = []
        while self._rest and self._step(events):
            pass
        return events

    def finish(self) -> list[ParserEvent]:
        events: list[ParserEvent] = []
        rest, self._rest = self._rest, ""
        if self._step == self._in_body:
            if rest:
                self._say(rest, events)
            self._end_call(events)
        elif rest:
            self._text(rest, events)
        return events

    leaves_text_alone = False  # another header may always come

    @property
    def unread_characters(self) -> int:
        return len(self._rest)

    def _in_first_header(self, events: list[ParserEvent]) -> bool:
        starts = self._syntax.header_starts
        if self._rest.startswith(starts):
            self._step = self._in_header
        elif not any(start.startswith(self._rest) for start in starts):
            self._kind = MessageKind.TEXT
            self._step = self._in_body
        else:
            return False
        return True

    def _in_header(self, events: list[ParserEvent]) -> bool:
        found = self._rest.find(_MESSAGE)
        if found < 0 and len(self._rest) <= MAX_HEADER_CHARACTERS:
            return False
        if not 0 <= found <= MAX_HEADER_CHARACTERS:
            self._kind = MessageKind.TEXT
            self._step = self._in_body
            return True
        self._header = self._rest[: found + len(_MESSAGE)]
        self._rest = self._rest[len(self._header) :]
        self._kind, self._tool = self._syntax.classify(self._header.removesuffix(_MESSAGE))
        self._step = self._in_body
        return True

    def _in_body(self, events: list[ParserEvent]) -> bool:
        found = self._marks.search(self._rest)
        end = found.start() if found else len(self._rest) - self._marks.partial_characters(self._rest)
        if end:
            self._say(self._rest[:end], events)
        self._rest = self._rest[found.end() if found else end :]
        if found is None:
            return False
        self._end_call(events)
        self._kind = MessageKind.TEXT
        self._step = self._in_header if found[0] == _START else self._between
        return True

    def _between(self, events: list[ParserEvent]) -> bool:
        """After a message's end: the start of the next, or text that belongs to none."""
        stripped = self._rest.lstrip()
        too_much_space = len(self._rest) - len(stripped) > MAX_HELD_SPACE_CHARACTERS
        if stripped.startswith(_START) and not too_much_space:
            self._rest = stripped[len(_START) :]
            self._step = self._in_header
            return True
        if _START.startswith(stripped) and not too_much_space:
            return False
        self._kind = MessageKind.TEXT
        self._step = self._in_body
        return True

    def _say(self, text: str, events: list[ParserEvent]) -> None:
        if self._kind is MessageKind.CALL:
            self._body.append(text)
        elif self._kind is MessageKind.REASONING:
            events.append(ReasoningPiece(text))
        else:
            self._text(text, events)

    def _text(self, text: str, events: list[ParserEvent]) -> None:
        self._seen_text = True
        events.append(TextPiece(text))

    def _end_call(self, events: list[ParserEvent]) -> None:
        if self._kind is not MessageKind.CALL:
            return
        body = "".join(self._body)
        self._body = []
        self._kind = MessageKind.TEXT
        calls = calls_of_json(body, self._tools, self._tool)
        if calls:
            events += self._calls.events(calls)
        else:
            self._text(self._header + body, events)
