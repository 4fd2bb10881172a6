"""OutputStyle: how a model writes reasoning and calls, told from its chat template, tokenizer and name."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from edgellm.errors import RequestError
from edgellm.parsing.answer_parser import AUTO, GPT_OSS, NONE, REASONING_PARSER_NAMES, TOOL_PARSER_NAMES
from edgellm.parsing.chat_template import ChatTemplate, TemplateRefusal
from edgellm.parsing.reasoning_parsers import THINK_END, THINK_START
from edgellm.parsing.template_traits import TemplateTraits
from edgellm.parsing.tool_call_styles import TOOL_CALL_STYLES

MUSE_GLIMMER = "muse_glimmer"
_CHANNEL_MARKS = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|eom|>", "<|eot|>")
_REASONING_PARSER_OF_NAME = (
    ("muse-glimmer", MUSE_GLIMMER),
    ("nemotron", "nemotron"),
    ("deepseek-r1", "deepseek_r1"),
    ("deepseek", "deepseek_r1"),
    ("qwen3", "qwen3"),
    ("qwq", "qwen3"),
)


@dataclass(frozen=True, slots=True)
class OutputStyle:
    """Parsers by name, never ``auto``.

    ``opens_reasoning``: prompts end inside a reasoning block; ``opens_reasoning_when_thinking``: they do when
    thinking is asked for. ``shows_tools``: the template has a place for tools and for calls of earlier turns.
    ``special_marks``: marks of this style are control tokens of the tokenizer, so that answers must be read with
    their control tokens. Token ids are None where a mark is not one token.
    """

    reasoning_parser: str = NONE
    tool_parser: str = "generic"
    opens_reasoning: bool = False
    opens_reasoning_when_thinking: bool = False
    shows_tools: bool = False
    special_marks: bool = False
    reasoning_start_token: int | None = None
    reasoning_end_token: int | None = None

    def chosen(self, reasoning_parser: str = AUTO, tool_parser: str = AUTO) -> OutputStyle:
        """The style with the parsers that an operator or a caller named, which ``check_parser_names`` let pass."""
        return replace(
            self,
            reasoning_parser=self.reasoning_parser if reasoning_parser == AUTO else reasoning_parser,
            tool_parser=self.tool_parser if tool_parser == AUTO else tool_parser,
        )

    def with_tools_shown(self) -> OutputStyle:
        """The style of a template that cannot be looked into: the runtime that renders it decides about tools."""
        return replace(self, shows_tools=True)

    def starts_in_reasoning(self, *, enable_thinking: bool) -> bool:
        """Whether answers to prompts of this template begin inside reasoning."""
        opens = self.opens_reasoning_when_thinking if enable_thinking else self.opens_reasoning
        return opens and self.reasoning_parser != NONE and self.tool_parser != GPT_OSS


def check_parser_names(*, reasoning_parser: str, **tool_parser: str) -> None:
    """Raises RequestError that names the option. The tool parser's has more than one name; pass it by that."""
    for option, name in {"reasoning_parser": reasoning_parser, **tool_parser}.items():
        names = REASONING_PARSER_NAMES if option == "reasoning_parser" else (*TOOL_PARSER_NAMES, NONE)
        if name not in names:
            raise RequestError(
                f"{option} {str(name)[:64]!r} is not known; it is one of {', '.join(names)}", param=option
            )


def output_style(
    template: ChatTemplate | None,
    traits: TemplateTraits | None,
    special_tokens: Collection[str],
    token_id: Callable[[str], int | None],
    model_name: str,
) -> OutputStyle:
    """``token_id`` gives the id of a text that is one token; ``special_tokens`` are texts of control tokens."""
    source = "" if template is None else template.source
    tool_parser = _tool_parser(source, model_name)
    style = OutputStyle(
        reasoning_parser=_reasoning_parser(source, model_name),
        tool_parser=tool_parser,
        shows_tools=traits is not None and traits.shows_tools,
        special_marks=any(mark in special_tokens for mark in _marks_of(tool_parser)),
        reasoning_start_token=token_id(THINK_START),
        reasoning_end_token=token_id(THINK_END),
    )
    if template is None:
        return style
    return replace(
        style,
        opens_reasoning=_opens_reasoning(template, enable_thinking=False),
        opens_reasoning_when_thinking=_opens_reasoning(template, enable_thinking=True),
    )


def _marks_of(tool_parser: str) -> list[str]:
    openers = TOOL_CALL_STYLES[tool_parser].openers
    return [*(opener.mark for opener in openers), *_CHANNEL_MARKS, THINK_START, THINK_END]


def _tool_parser(source: str, model_name: str) -> str:
    """What the template shows of calls decides; a name only where it shows nothing."""
    name = model_name.lower().replace("_", "-")
    if "<|channel|>" in source:
        return GPT_OSS
    if "<TOOLCALL>" in source:
        return "nemotron"
    if "<function=" in source:
        return "nemotron" if "nemotron" in name else "qwen3_xml"
    if "<tool_call>" in source:
        return "hermes"
    if source:
        return "generic"
    if "gpt-oss" in name:
        return GPT_OSS
    if "nemotron" in name:
        return "nemotron"
    if "qwen3" in name and "coder" in name:
        return "qwen3_xml"
    return "hermes" if "qwen" in name else "generic"


def _reasoning_parser(source: str, model_name: str) -> str:
    name = model_name.lower().replace("_", "-")
    by_name = next((parser for part, parser in _REASONING_PARSER_OF_NAME if part in name), NONE)
    if "<|eom|>" in source and "to=self" in source:
        return MUSE_GLIMMER
    if THINK_END in source:
        return by_name if by_name not in (NONE, MUSE_GLIMMER) else "qwen3"
    # A template that knows no reasoning is no proof: some leave the marks to the model.
    return by_name if by_name != MUSE_GLIMMER or not source else NONE


def _opens_reasoning(template: ChatTemplate, *, enable_thinking: bool) -> bool:
    try:
        prompt = template.attempt([{"role": "user", "content": "x"}], enable_thinking=enable_thinking)
    except (TemplateRefusal, RequestError):
        return False
    return prompt.rstrip().endswith(THINK_START) or prompt.rstrip().endswith("to=self<|message|>")
