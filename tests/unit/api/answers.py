"""An answer of every kind of event, and streams taken apart, for the tests of each protocol."""

from __future__ import annotations

import json
from typing import Any

from edgellm.parsing.answer_events import (
    AnswerEnd,
    AnswerEvent,
    CallArguments,
    CallEnd,
    CallStart,
    ReasoningPiece,
    TextPiece,
)

USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
ALL_KINDS: list[AnswerEvent] = [
    ReasoningPiece("Let me "),
    ReasoningPiece("see."),
    TextPiece("I "),
    TextPiece("look."),
    CallStart(0, "call_a", "weather"),
    CallArguments(0, '{"city":'),
    CallArguments(0, '"Oslo"}'),
    CallEnd(0),
    CallStart(1, "call_b", "clock"),
    CallArguments(1, "{}"),
    CallEnd(1),
    AnswerEnd("tool_calls"),
]
TEXT_AROUND_A_CALL: list[AnswerEvent] = [
    TextPiece("I look."),
    CallStart(0, "call_a", "weather"),
    CallArguments(0, '{"city":"Oslo"}'),
    CallEnd(0),
    TextPiece("And now?"),
    AnswerEnd("length"),
]


def named_events(stream: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Name and data of each event; the name is the data's type."""
    assert stream.endswith(b"\n\n")
    events = []
    for block in stream.decode().removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    assert all(name == data["type"] for name, data in events)
    return events
