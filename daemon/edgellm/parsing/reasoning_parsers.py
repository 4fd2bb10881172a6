"""Reasoning parsers: what a model thought, apart from what it says. The registry has them by name.

    ``qwen3``, ``deepseek_r1``, ``nemotron``   <think> … </think>, first thing in the answer
    ``muse_glimmer``                           messages with recipients: those to=self are reasoning

A block that the prompt opened already (templates of models that always think do so) has no opening mark in the
answer. White space beside the marks belongs to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from edgellm.parsing.answer_events import ParserEvent, ReasoningPiece, TextPiece
from edgellm.parsing.channel_parser import ChannelParser, muse_channels
from edgellm.parsing.held_text import MAX_HELD_SPACE_CHARACTERS, Marks, trailing_space
from edgellm.parsing.reasoning_state import ReasoningState

THINK_START = "<think>"
THINK_END = "</think>"


class ReasoningParser(Protocol):
    def feed(self, text: str) -> list[ParserEvent]: ...

    def finish(self) -> list[ParserEvent]: ...

    @property
    def state(self) -> ReasoningState: ...

    @property
    def leaves_text_alone(self) -> bool:
        """Whatever text follows is a TextPiece."""
        ...

    @property
    def unread_characters(self) -> int: ...


class ThinkBlockParser:
    """One block between two marks, at the start of the answer; what looks like a mark later is text."""

    def __init__(self, starts_inside: bool, start: str = THINK_START, end: str = THINK_END) -> None:
        self._start = start
        self._end = Marks([end])
        self.state = ReasoningState.INSIDE if starts_inside else ReasoningState.BEFORE
        self._held = ""
        self._skips_space = starts_inside  # white space after a mark

    def feed(self, text: str) -> list[ParserEvent]:
        if self.leaves_text_alone:
            return [TextPiece(text)]
        text = self._held + text
        self._held = ""
        events: list[ParserEvent] = []
        if self.state is ReasoningState.BEFORE:
            text = self._before(text)
        if self.state is ReasoningState.INSIDE:
            text = self._inside(text, events)
        if self.state is ReasoningState.AFTER:
            text = self._without_leading_space(text)
            if text:
                events.append(TextPiece(text))
        return events

    def finish(self) -> list[ParserEvent]:
        held, self._held = self._held, ""
        if not held:
            return []
        return [ReasoningPiece(held) if self.state is ReasoningState.INSIDE else TextPiece(held)]

    @property
    def leaves_text_alone(self) -> bool:
        return self.state is ReasoningState.AFTER and not self._skips_space

    @property
    def unread_characters(self) -> int:
        return len(self._held)

    def _before(self, text: str) -> str:
        stripped = text.lstrip()
        if len(text) - len(stripped) <= MAX_HELD_SPACE_CHARACTERS:
            if stripped.startswith(self._start):
                self.state = ReasoningState.INSIDE
                self._skips_space = True
                return stripped[len(self._start) :]
            if self._start.startswith(stripped):
                self._held = text
                return ""
        self.state = ReasoningState.AFTER
        return text

    def _inside(self, text: str, events: list[ParserEvent]) -> str:
        text = self._without_leading_space(text)
        found = self._end.search(text)
        end = found.start() if found else len(text) - self._end.partial_characters(text)
        said = text[: trailing_space(text, end)]
        if said:
            events.append(ReasoningPiece(said))
        if found is None:
            self._held = text[len(said) :]
            return ""
        self.state = ReasoningState.AFTER
        self._skips_space = True
        return text[found.end() :]

    def _without_leading_space(self, text: str) -> str:
        if self._skips_space:
            text = text.lstrip()
            self._skips_space = not text
        return text


class NoReasoning:
    """Everything is text."""

    state = ReasoningState.AFTER
    leaves_text_alone = True
    unread_characters = 0

    def feed(self, text: str) -> list[ParserEvent]:
        return [TextPiece(text)] if text else []

    def finish(self) -> list[ParserEvent]:
        return []


def _muse(starts_inside: bool) -> ReasoningParser:
    return ChannelParser(muse_channels(), starts_inside)


REASONING_PARSERS: Mapping[str, Callable[[bool], ReasoningParser]] = {
    "none": lambda starts_inside: NoReasoning(),
    "qwen3": ThinkBlockParser,
    "deepseek_r1": ThinkBlockParser,
    "nemotron": ThinkBlockParser,
    "muse_glimmer": _muse,
}
"""Each makes a parser for one answer; its argument tells that the prompt ended inside reasoning."""
