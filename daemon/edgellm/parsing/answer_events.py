"""Answer events: what an answer consists of, whatever protocol it travels in and whatever format the model wrote.

The events of one choice come in order: pieces of reasoning and text, calls one after the other, one AnswerEnd at
last. A call's events are not interleaved with others: CallStart, any number of CallArguments, CallEnd. Pieces in a
row say what one piece with their joined texts says; empty pieces are never sent.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextPiece:
    """The next part of what the answer says."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPiece:
    """The next part of what the model thought before it answered."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """The model calls a tool. ``index`` counts the calls of this choice from 0; ``id`` is unique."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next part of the arguments of call ``index``; the parts join to the text of one JSON object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """Call ``index`` is complete."""

    index: int


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """Nothing follows. ``reason`` is stop, length or tool_calls; ``matched_stop`` indexes the request's stops."""

    reason: str | None
    matched_stop: int | None = None


ParserEvent = TextPiece | ReasoningPiece | CallStart | CallArguments | CallEnd
AnswerEvent = ParserEvent | AnswerEnd


def merged(events: list[AnswerEvent]) -> list[AnswerEvent]:
    """The same events with neighbouring pieces joined: how a whole answer reads."""
    joined: list[AnswerEvent] = []
    for event in events:
        last = joined[-1] if joined else None
        if isinstance(event, TextPiece) and isinstance(last, TextPiece):
            joined[-1] = TextPiece(last.text + event.text)
        elif isinstance(event, ReasoningPiece) and isinstance(last, ReasoningPiece):
            joined[-1] = ReasoningPiece(last.text + event.text)
        elif isinstance(event, CallArguments) and isinstance(last, CallArguments):
            joined[-1] = CallArguments(event.index, last.text + event.text)
        else:
            joined.append(event)
    return joined
