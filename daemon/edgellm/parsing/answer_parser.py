"""AnswerParser: the text of one choice, as it grows, becomes answer events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from edgellm.parsing.answer_events import ParserEvent, TextPiece


class TextParser(Protocol):
    """One stage. Joined over all calls, its events do not depend on where the text was split."""

    def feed(self, text: str) -> list[ParserEvent]:
        """The events that this text makes certain; what could still become something else is held back."""
        ...

    def finish(self) -> list[ParserEvent]:
        """The events of what was held back: no text follows."""
        ...


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """How the answers of one request are written.

    ``reasoning_parser`` and ``tool_parser`` are names of their registries, neither of them ``auto``; ``none`` leaves
    the text alone. ``starts_in_reasoning``: the prompt ended inside a reasoning block, so the answer begins in it.
    ``tools`` maps the name of each tool that may be called to its JSON schema of parameters.
    ``reasoning_start_token`` and ``reasoning_end_token`` are ids, where the marks of reasoning are one token each:
    with them reasoning tokens are counted exactly.
    """

    reasoning_parser: str = "none"
    tool_parser: str = "none"
    starts_in_reasoning: bool = False
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parallel_tool_calls: bool = True
    reasoning_start_token: int | None = None
    reasoning_end_token: int | None = None


class ReasoningState(Enum):
    """Where in the answer the end of the text is."""

    BEFORE = "before"  # reasoning may still begin
    INSIDE = "inside"
    AFTER = "after"  # it has ended, or there is none


class PlainText:
    """The stage that leaves text as it is."""

    def feed(self, text: str) -> list[ParserEvent]:
        return [TextPiece(text)] if text else []

    def finish(self) -> list[ParserEvent]:
        return []


class AnswerParser:
    """Splits reasoning off, then finds calls in the rest. Nothing of the text is lost but the marks between them."""

    def __init__(self, answer_format: AnswerFormat, new_call_id: Callable[[], str] | None = None) -> None:
        self._tools: TextParser = PlainText()

    def feed(self, text: str) -> list[ParserEvent]:
        return self._tools.feed(text)

    def finish(self) -> list[ParserEvent]:
        return self._tools.finish()

    @property
    def reasoning_state(self) -> ReasoningState:
        return ReasoningState.AFTER
