"""The ways in which models write calls: the marks that open them and what may stand between these.

``hermes``      <tool_call>{"name": …, "arguments": {…}}</tool_call>
``qwen3_xml``   <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>
``nemotron``    <TOOLCALL>[{"name": …, "arguments": {…}}]</TOOLCALL>, and as qwen3_xml
``openai``      messages of gpt-oss (see channel_parser), and as generic
``generic``     all of these, Mistral's [TOOL_CALLS], Llama's <|python_tag|>, Muse-Glimmer's
                <atem:function_calls>, and an answer that is nothing but a call's JSON
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto

from edgellm.parsing.held_text import Marks


class Body(Flag):
    """What may come after a mark."""

    JSON = auto()
    FUNCTION = auto()  # <function=NAME>…
    INVOKE = auto()  # <atem:invoke name="NAME">…
    NAMED = auto()  # NAME[ARGS]{…}


@dataclass(frozen=True, slots=True)
class Opener:
    """``mark`` opens calls up to ``closer``; one without a closer ends where its JSON does."""

    mark: str
    closer: str
    body: Body


@dataclass(frozen=True, slots=True)
class ElementSyntax:
    """How a call looks whose arguments are written as elements: texts, not JSON."""

    open: str
    name_end: str
    argument_open: str
    argument_name_end: str
    argument_close: Marks
    close: str


@dataclass(frozen=True, slots=True)
class ToolCallStyle:
    """``bare_json``: an answer may be a call without any mark."""

    openers: Sequence[Opener]
    bare_json: bool = False
    marks: Marks = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "marks", Marks([opener.mark for opener in self.openers]))


FUNCTION_SYNTAX = ElementSyntax("<function=", ">", "<parameter=", ">", Marks(["</parameter>"]), "</function>")
INVOKE_SYNTAX = ElementSyntax(
    '<atem:invoke name="', '">', '<atem:parameter name="', '">', Marks(["</atem:parameter>"]), "</atem:invoke>"
)

_TOOL_CALL = Opener("<tool_call>", "</tool_call>", Body.JSON | Body.FUNCTION)
_FUNCTION = Opener(FUNCTION_SYNTAX.open, "", Body.FUNCTION)
_NEMOTRON = Opener("<TOOLCALL>", "</TOOLCALL>", Body.JSON)
_OTHERS = (
    Opener("<tool_calls>", "</tool_calls>", Body.JSON),
    Opener("<toolcall>", "</toolcall>", Body.JSON),
    Opener("<function_call>", "</function_call>", Body.JSON),
    Opener("<function_calls>", "</function_calls>", Body.JSON),
    Opener("<atem:function_calls>", "</atem:function_calls>", Body.INVOKE),
    Opener("[TOOL_CALL]", "[/TOOL_CALL]", Body.JSON),
    Opener("[TOOL_CALLS]", "", Body.JSON | Body.NAMED),
    Opener("<|python_tag|>", "", Body.JSON),
)
_GENERIC = ToolCallStyle((_TOOL_CALL, _FUNCTION, _NEMOTRON, *_OTHERS), bare_json=True)

TOOL_CALL_STYLES: Mapping[str, ToolCallStyle] = {
    "generic": _GENERIC,
    "hermes": ToolCallStyle((_TOOL_CALL,)),
    "qwen3_xml": ToolCallStyle((_TOOL_CALL, _FUNCTION)),
    "nemotron": ToolCallStyle((_NEMOTRON, _TOOL_CALL, _FUNCTION)),
    "openai": _GENERIC,
}
