"""AnswerParser: the text of one choice, as it grows, becomes answer events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgellm.parsing.answer_events import ParserEvent, TextPiece
from edgellm.parsing.channel_parser import ChannelParser, gpt_oss_channels
from edgellm.parsing.reasoning_parsers import REASONING_PARSERS, ReasoningParser
from edgellm.parsing.reasoning_state import ReasoningState
from edgellm.parsing.tool_call_parser import ToolCallParser
from edgellm.parsing.tool_call_styles import TOOL_CALL_STYLES
from edgellm.parsing.tool_call_values import CallCounter

AUTO = "auto"
NONE = "none"
GPT_OSS = "openai"
REASONING_PARSER_NAMES = (AUTO, *REASONING_PARSERS)
TOOL_PARSER_NAMES = (AUTO, *TOOL_CALL_STYLES)


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """How the answers of one request are written.

    ``reasoning_parser`` and ``tool_parser`` are names of their registries, neither of them ``auto``; ``none`` leaves
    the text alone. ``starts_in_reasoning``: the prompt ended inside a reasoning block, so the answer begins in it.
    ``tools`` maps the name of each tool that may be called to its JSON schema of parameters.
    ``calls_enforced``: a grammar lets the answer be nothing but calls, after its reasoning, so that what is left of
    one that was cut off is no text. ``calls_guided``: it lets the answer be calls or a form that was asked for, so that
    what begins as a call is nothing else.
    ``reasoning_start_token`` and ``reasoning_end_token`` are ids, where the marks of reasoning are one token each:
    with them reasoning tokens are counted exactly.
    """

    reasoning_parser: str = NONE
    tool_parser: str = NONE
    starts_in_reasoning: bool = False
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parallel_tool_calls: bool = True
    calls_enforced: bool = False
    calls_guided: bool = False
    reasoning_start_token: int | None = None
    reasoning_end_token: int | None = None


class AnswerParser:
    """Splits reasoning off, then finds calls in the rest. Nothing of the text is lost but the marks between them, and,
    where a grammar wrote it, a call that was cut off.

    Joined over all calls, the events do not depend on where the text was split.
    """

    def __init__(self, answer_format: AnswerFormat, new_call_id: Callable[[], str] | None = None) -> None:
        self._calls_enforced = answer_format.calls_enforced
        self._calls_guided = answer_format.calls_guided
        self._cut_off = False  # the text ended within a call that a grammar wrote
        tools = answer_format.tools if answer_format.tool_parser != NONE else {}
        self._counter = calls = CallCounter(parallel=answer_format.parallel_tool_calls, new_id=new_call_id)
        starts_inside = answer_format.starts_in_reasoning
        self._reasoning: ReasoningParser
        if answer_format.tool_parser == GPT_OSS:
            self._reasoning = ChannelParser(gpt_oss_channels(), starts_inside, tools, calls)
        else:
            self._reasoning = REASONING_PARSERS[answer_format.reasoning_parser](starts_inside)
        self._calls = ToolCallParser(TOOL_CALL_STYLES[answer_format.tool_parser], tools, calls) if tools else None

    def feed(self, text: str) -> list[ParserEvent]:
        """The events that this text makes certain; what could still become something else is held back."""
        return self._with_calls(self._reasoning.feed(text))

    def finish(self) -> list[ParserEvent]:
        """The events of what was held back: no text follows."""
        events = self._with_calls(self._reasoning.finish())
        if self._calls is not None:
            events += self._calls.finish()
        broke_off = self._calls is not None and self._calls.broke_off
        if not (self._calls_enforced or (self._calls_guided and broke_off)):
            return events
        kept: list[ParserEvent] = [event for event in events if not isinstance(event, TextPiece)]
        self._cut_off = len(kept) < len(events)
        return kept

    @property
    def reasoning_state(self) -> ReasoningState:
        return self._reasoning.state

    def finish_reason(self, reason: str | None) -> str | None:
        """Once finished: why the answer ended, with ``reason`` why its text did. Calls count unless one was cut off."""
        within_call = self._cut_off or (self._calls is not None and self._calls.broke_off)
        cut_off = reason == "length" and within_call
        return "tool_calls" if self._counter.count and reason in ("stop", "length") and not cut_off else reason

    @property
    def leaves_text_alone(self) -> bool:
        """Whatever text follows is a TextPiece: it need not be fed any more."""
        return self._calls is None and self._reasoning.leaves_text_alone

    @property
    def unread_characters(self) -> int:
        """How much of the text is looked at again with the next piece: bounded, whatever the text."""
        calls = 0 if self._calls is None else self._calls.unread_characters
        return self._reasoning.unread_characters + calls

    def _with_calls(self, events: list[ParserEvent]) -> list[ParserEvent]:
        if self._calls is None:
            return events
        told: list[ParserEvent] = []
        for event in events:
            if isinstance(event, TextPiece):
                told += self._calls.feed(event.text)
            else:
                told.append(event)
        return told
