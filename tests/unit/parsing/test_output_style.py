"""How a model writes is told from its template, its tokenizer and its name."""

from __future__ import annotations

from typing import get_args

import pytest
from tests.unit.parsing.chat_templates import CHATML, REASONING

from edgellm.config.settings import ModelSettings
from edgellm.errors import RequestError
from edgellm.parsing.answer_parser import REASONING_PARSER_NAMES, TOOL_PARSER_NAMES
from edgellm.parsing.chat_template import ChatTemplate
from edgellm.parsing.output_style import OutputStyle, check_parser_names, output_style
from edgellm.parsing.template_traits import template_traits

THINKS_ALWAYS = CHATML.replace("assistant\n' }}{% endif", "assistant\n<think>\n' }}{% endif")
SWITCHED = CHATML + "{% if enable_thinking %}{{ '<think>' }}{% else %}{{ '<think></think>' }}{% endif %}"
MUSE = CHATML + "{# <|eom|> #}{{ 'to=self<|message|>' if enable_thinking else 'to=user<|message|>' }}"


def _style(source: str | None, name: str = "some-model", special: tuple[str, ...] = ()) -> OutputStyle:
    template = None if source is None else ChatTemplate(source)
    traits = None if template is None else template_traits(template)
    ids = {"<think>": 7, "</think>": 8}
    return output_style(template, traits, special, ids.get, name)


@pytest.mark.parametrize(
    ("source", "name", "reasoning", "tool"),
    [
        (CHATML, "some-model", "none", "generic"),
        (REASONING, "Qwen3-4B", "qwen3", "hermes"),
        (REASONING, "some-model", "qwen3", "hermes"),
        (THINKS_ALWAYS, "DeepSeek-R1-Distill-Qwen-7B", "deepseek_r1", "generic"),
        (THINKS_ALWAYS + "{# </think> <TOOLCALL> #}", "nemotron_nano_9b", "nemotron", "nemotron"),
        (THINKS_ALWAYS + "{# </think> <function= #}", "Nemotron-3-Nano", "nemotron", "nemotron"),
        (CHATML + "{# <function= #}", "Qwen3-Coder-30B", "qwen3", "qwen3_xml"),
        (CHATML + "{# <|channel|> #}", "gpt-oss-20b", "none", "openai"),
        (MUSE, "muse_glimmer", "muse_glimmer", "generic"),
        (CHATML, "muse_glimmer", "none", "generic"),
        (None, "Qwen2.5-7B", "none", "hermes"),
        (None, "gpt-oss", "none", "openai"),
        (None, "qwen3-coder", "qwen3", "qwen3_xml"),
        (None, "other", "none", "generic"),
    ],
)
def test_auto_goes_by_template_then_by_name(source: str | None, name: str, reasoning: str, tool: str) -> None:
    style = _style(source, name)
    assert (style.reasoning_parser, style.tool_parser) == (reasoning, tool)


@pytest.mark.parametrize(
    ("source", "opens", "opens_when_thinking"),
    [(CHATML, False, False), (THINKS_ALWAYS, True, True), (SWITCHED, False, True), (MUSE, False, True)],
)
def test_prompts_that_end_inside_reasoning(source: str, opens: bool, opens_when_thinking: bool) -> None:
    style = _style(source, "deepseek")
    assert (style.opens_reasoning, style.opens_reasoning_when_thinking) == (opens, opens_when_thinking)
    assert style.starts_in_reasoning(enable_thinking=True) is opens_when_thinking
    assert not style.chosen(reasoning_parser="none").starts_in_reasoning(enable_thinking=True)


def test_marks_and_tools_are_known() -> None:
    assert _style(REASONING).shows_tools
    assert not _style(CHATML).shows_tools
    assert not _style(CHATML, special=("<|im_end|>",)).special_marks
    assert _style(CHATML, special=("[TOOL_CALLS]",)).special_marks
    assert (_style(CHATML).reasoning_start_token, _style(CHATML).reasoning_end_token) == (7, 8)


def test_a_choice_wins_over_auto() -> None:
    style = _style(REASONING)
    assert style.chosen() == style
    chosen = style.chosen("none", "nemotron")
    assert (chosen.reasoning_parser, chosen.tool_parser) == ("none", "nemotron")


@pytest.mark.parametrize("options", [{"reasoning_parser": "x"}, {"reasoning_parser": "auto", "tool_parser": "x"}])
def test_an_unknown_parser_is_named(options: dict[str, str]) -> None:
    with pytest.raises(RequestError) as refusal:
        check_parser_names(**options)
    assert refusal.value.param == next(name for name, value in options.items() if value == "x")


def test_the_settings_know_the_parsers_of_the_registries() -> None:
    fields = ModelSettings.model_fields
    assert set(get_args(fields["reasoning_parser"].annotation)) == set(REASONING_PARSER_NAMES)
    assert set(get_args(fields["tool_call_parser"].annotation)) == set(TOOL_PARSER_NAMES)
