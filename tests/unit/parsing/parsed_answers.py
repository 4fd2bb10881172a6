"""Runs answers through the parser: whole, and in pieces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from edgellm.parsing.answer_events import (
    AnswerEvent,
    CallArguments,
    CallEnd,
    CallStart,
    ReasoningPiece,
    TextPiece,
    merged,
)
from edgellm.parsing.answer_parser import AnswerFormat, AnswerParser

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "exact": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "limit": {"type": ["number", "null"]},
    },
    "required": ["city"],
}
TOOLS = {"get_weather": WEATHER, "stop": {"type": "object", "properties": {}}, "run": {}}


MOST_CUTS = 40


@dataclass
class Answer:
    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)


def events_of(answer_format: AnswerFormat, pieces: Sequence[str]) -> list[AnswerEvent]:
    """All events, neighbours joined; ids are call-0, call-1 and so on."""
    numbers = count()
    parser = AnswerParser(answer_format, lambda: f"call-{next(numbers)}")
    events: list[AnswerEvent] = []
    for piece in pieces:
        events += parser.feed(piece)
    events += parser.finish()
    assert all(event.text for event in events if isinstance(event, TextPiece | ReasoningPiece))
    return merged(events)


def answer_of(text: str, tool_parser: str = "none", reasoning_parser: str = "none", **further: Any) -> Answer:
    """The answer, which many ways of cutting the text in two must give, and the one of single characters."""
    tools = TOOLS if tool_parser != "none" else {}
    answer_format = AnswerFormat(reasoning_parser, tool_parser, **{"tools": tools, **further})
    events = events_of(answer_format, [text])
    assert events_of(answer_format, list(text)) == events
    for cut in range(1, len(text), 1 + len(text) // MOST_CUTS):
        assert events_of(answer_format, [text[:cut], text[cut:]]) == events, cut
    return gathered(events)


def gathered(events: Sequence[AnswerEvent]) -> Answer:
    answer = Answer()
    open_call: int | None = None
    for event in events:
        match event:
            case TextPiece(text):
                assert open_call is None
                answer.text += text
            case ReasoningPiece(text):
                assert open_call is None
                answer.reasoning += text
            case CallStart(index, _, name):
                assert index == len(answer.calls)
                open_call = index
                answer.calls.append((name, None))
            case CallArguments(index, text):
                assert index == open_call
                arguments = json.loads(text)
                assert isinstance(arguments, dict)
                answer.calls[index] = (answer.calls[index][0], arguments)
            case CallEnd(index):
                assert index == open_call
                open_call = None
    assert open_call is None
    assert all(arguments is not None for _, arguments in answer.calls)
    return answer
