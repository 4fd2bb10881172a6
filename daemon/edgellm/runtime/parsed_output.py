"""Whole outputs, read: reasoning and calls apart from the text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edgellm.parsing.answer_events import CallArguments, CallStart, ReasoningPiece, TextPiece
from edgellm.parsing.answer_parser import AnswerFormat, AnswerParser
from edgellm.runtime.outputs import CompletionOutput


def parsed_output(output: CompletionOutput, answer_format: AnswerFormat | None) -> CompletionOutput:
    """The output with its calls in OpenAI form; None for calls and reasoning that are not there."""
    if answer_format is None:
        return output
    parser = AnswerParser(answer_format)
    texts: list[str] = []
    reasonings: list[str] = []
    calls: list[dict[str, Any]] = []
    for event in [*parser.feed(output.text), *parser.finish()]:
        match event:
            case TextPiece(text):
                texts.append(text)
            case ReasoningPiece(text):
                reasonings.append(text)
            case CallStart(_, call_id, name):
                calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}})
            case CallArguments(index, text):
                calls[index]["function"]["arguments"] += text
    return replace(
        output,
        text="".join(texts),
        reasoning="".join(reasonings) or None,
        tool_calls=calls or None,
        finish_reason=parser.finish_reason(output.finish_reason),
    )
