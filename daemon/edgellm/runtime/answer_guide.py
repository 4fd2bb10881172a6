"""Guides for whole answers: calls that must be made, structured output, and the reasoning that may come before both.

Each is a structural tag, which both runtimes take. What an answer may consist of is one grammar: a guide that began
with the first token would leave a model that thinks no room to do so, and would let no call be made beside an answer
of a given form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgellm.errors import RequestError
from edgellm.parsing.answer_parser import GPT_OSS
from edgellm.parsing.output_style import OutputStyle
from edgellm.parsing.reasoning_parsers import REASONING_PARSERS, THINK_END, THINK_START, ThinkBlockParser
from edgellm.runtime.guided_decoding import GuidedDecoding
from edgellm.runtime.tools import Tool

Format = dict[str, Any]

TAG_GUIDE = "structural_tag"
_TAG_PATH = f"guided_decoding.{TAG_GUIDE}"
_RULES_FOR_OTHERS = ("additionalProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf")
_NO_PARAMETERS: Format = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class GuidePaths:
    """Where the parts of a guide came from: paths in the guide, with the paths in the request they stand for."""

    renamed: Sequence[tuple[str, str]] = ()

    def as_asked(self, error: RequestError) -> RequestError:
        """The error with the paths of the fields that asked."""
        for inside, asked in self.renamed:
            if (error.param or "").startswith(inside):
                message = error.message.replace(inside, asked, 1)
                return type(error)(message, param=(error.param or "").replace(inside, asked, 1))
        return error


class AnswerGuide:
    """Collects the ways in which an answer may go on after its reasoning."""

    def __init__(self, style: OutputStyle) -> None:
        self._style = style
        self._ways: list[Format] = []
        self._sources: list[tuple[object, str]] = []

    def add_calls(self, tools: Sequence[tuple[int, Tool]], *, parallel: bool) -> None:
        """One call at least, of ``tools``, each with its index in the request."""
        begin, end = _call_marks(self._style.tool_parser)
        tags: list[Format] = []
        for index, tool in tools:
            schema = _closed(json.loads(tool.parameters)) if tool.has_parameters else dict(_NO_PARAMETERS)
            self._sources.append((schema, f"tools[{index}].function.parameters"))
            content = {"type": "json_schema", "json_schema": schema}
            tags.append({"type": "tag", "begin": begin(tool.name), "content": content, "end": end})
        one_at_most = not parallel or self._style.tool_parser == GPT_OSS
        calls: Format = {"type": "tags_with_separator", "tags": tags, "separator": "\n", "at_least_one": True}
        if one_at_most:
            calls["stop_after_first"] = True
        self._ways.append(calls)

    def add_form(self, guide: GuidedDecoding, asked_as: str) -> None:
        """An answer in the form of ``guide``, which came from the field ``asked_as``."""
        form, part = _format_of(guide)
        self._sources.append((form if part is None else part, asked_as))
        self._ways.append(form)

    def guide(self, *, starts_in_reasoning: bool, may_reason: bool) -> tuple[GuidedDecoding, GuidePaths]:
        """Raises RequestError when the whole is too large."""
        answer = self._ways[0] if len(self._ways) == 1 else {"type": "or", "elements": self._ways}
        reasoned = {"type": "sequence", "elements": [_reasoning("" if starts_in_reasoning else THINK_START), answer]}
        if starts_in_reasoning:
            answer = reasoned
        elif may_reason:
            answer = {"type": "or", "elements": [answer, reasoned]}
        tag = {"type": TAG_GUIDE, "format": answer}
        paths = GuidePaths([*self._renamed(answer, f"{_TAG_PATH}.format"), (_TAG_PATH, self._asked_for_whole())])
        try:
            return GuidedDecoding(TAG_GUIDE, json.dumps(tag, ensure_ascii=False, separators=(",", ":"))), paths
        except RequestError as error:
            raise paths.as_asked(error) from None

    def _asked_for_whole(self) -> str:
        first, *others = (asked_as for _, asked_as in self._sources)
        return first.partition("[")[0] if others else first

    def _renamed(self, node: object, path: str) -> list[tuple[str, str]]:
        for source, asked_as in self._sources:
            if node is source:
                return [(path, asked_as)]
        found: list[tuple[str, str]] = []
        if isinstance(node, dict):
            for key, value in node.items():
                found += self._renamed(value, f"{path}.{key}")
        elif isinstance(node, list):
            for index, value in enumerate(node):
                found += self._renamed(value, f"{path}[{index}]")
        return found


def writes_think_blocks(style: OutputStyle) -> bool:
    """Its reasoning stands between two marks, with which a grammar can tell it from the answer."""
    return style.tool_parser != GPT_OSS and REASONING_PARSERS[style.reasoning_parser] is ThinkBlockParser


def _reasoning(begin: str) -> Format:
    return {"type": "tag", "begin": begin, "content": {"type": "any_text"}, "end": THINK_END}


def _call_marks(tool_parser: str) -> tuple[Any, str]:
    """How a call begins, by the tool's name, and how it ends; the arguments stand between."""
    if tool_parser == GPT_OSS:
        return (lambda name: f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"), "<|call|>"
    if tool_parser == "nemotron":
        return (lambda name: f'<TOOLCALL>[{{"name": {_quoted(name)}, "arguments": '), "}]</TOOLCALL>"
    return (lambda name: f'<tool_call>\n{{"name": {_quoted(name)}, "arguments": '), "}\n</tool_call>"


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _closed(schema: Mapping[str, Any]) -> Format:
    """Arguments are an object; where its schema names properties and no rule for others, there are no others."""
    if not schema:
        return dict(_NO_PARAMETERS)
    closed: Format = {**schema, "type": "object"}
    names_all = "properties" in schema and not any(keyword in schema for keyword in _RULES_FOR_OTHERS)
    return {**closed, "additionalProperties": False} if names_all else closed


def _format_of(guide: GuidedDecoding) -> tuple[Format, object | None]:
    """The guide as a format, and the part of it that is the client's own where that is not all of it."""
    match guide.type:
        case "json_object":
            return {"type": "json_schema", "json_schema": {"type": "object"}}, None
        case "json_schema":
            schema = json.loads(guide.guide)
            return {"type": "json_schema", "json_schema": schema}, schema
        case "regex":
            return {"type": "regex", "pattern": guide.guide}, None
        case "ebnf":
            return {"type": "grammar", "grammar": guide.guide}, None
        case "choice":
            choices = json.loads(guide.guide)
            return {"type": "or", "elements": [{"type": "const_string", "value": choice} for choice in choices]}, None
        case _:
            tag = json.loads(guide.guide)
            if "format" not in tag:
                raise RequestError(
                    "guided_decoding.structural_tag must have a format where reasoning or tools come beside it",
                    param="guided_decoding.structural_tag",
                )
            return tag["format"], tag["format"]
