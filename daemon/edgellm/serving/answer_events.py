"""ChoiceEvents: the one stream of typed events that every protocol formats.

A generation gives deltas of raw text (``ChoiceDelta``). One ChoiceEvents a choice turns them into answer events:
text, reasoning, calls with their arguments, the end. Chat completions, Responses and Anthropic Messages each write
these events in their own words; none of them looks at the model's text. Token counts are not events: ``Usage`` takes
them from the same deltas, and ``reasoning_tokens`` here says how many of them were reasoning.

    events = [ChoiceEvents(answer_format) for _ in range(choices)]
    while deltas := await generation.next_deltas():
        for item in deltas:
            for event in events[item.index].take(item.delta):
                match event:
                    case TextPiece(text): ...
                    case ReasoningPiece(text): ...
                    case CallStart(index, call_id, name): ...
                    case CallArguments(index, text): ...
                    case CallEnd(index): ...
                    case AnswerEnd(reason, matched_stop): ...

Where a request needs no parser, GenerationResponse skips all this and formats the deltas themselves.
"""

from __future__ import annotations

from edgellm.parsing.answer_events import AnswerEnd, AnswerEvent
from edgellm.parsing.answer_parser import AnswerFormat, AnswerParser
from edgellm.parsing.reasoning_state import ReasoningState
from edgellm.runtime.outputs import StreamDelta


class ChoiceEvents:
    """Takes the deltas of one choice in order. Independent of how they were merged on the way."""

    def __init__(self, answer_format: AnswerFormat) -> None:
        self._parser = AnswerParser(answer_format)
        self._start_token = answer_format.reasoning_start_token
        self._end_token = answer_format.reasoning_end_token
        self.reasoning_tokens = 0

    def take(self, delta: StreamDelta) -> list[AnswerEvent]:
        """The events of this delta, whose text may be held back until the next; the finished one gives AnswerEnd."""
        before = self._parser.reasoning_state
        events: list[AnswerEvent] = list(self._parser.feed(delta.text)) if delta.text else []
        if before is not ReasoningState.AFTER:
            self.reasoning_tokens += self._reasoning_part(delta.token_ids, before)
        if delta.finished:
            events += self._parser.finish()
            events.append(AnswerEnd(self._parser.finish_reason(delta.finish_reason), delta.matched_stop))
        return events

    @property
    def leaves_text_alone(self) -> bool:
        """Whatever text follows is a TextPiece, and none of its tokens is reasoning."""
        return self._parser.leaves_text_alone

    def _reasoning_part(self, token_ids: list[int], before: ReasoningState) -> int:
        """How many of these tokens are reasoning, with those that begin and end it."""
        after = self._parser.reasoning_state
        start, stop = 0, len(token_ids)
        if before is ReasoningState.BEFORE:
            if self._start_token in token_ids:
                start = token_ids.index(self._start_token)
            elif after is not ReasoningState.INSIDE:
                return 0
        if after is ReasoningState.AFTER and self._end_token in token_ids:
            stop = token_ids.index(self._end_token) + 1
        return max(0, stop - start)
