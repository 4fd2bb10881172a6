"""Templates in the shape of well-known families: what is shown of tools, calls and reasoning, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.parsing.family_templates import FAMILIES, QWEN3
from tests.unit.parsing.parsed_answers import events_of, gathered

from edgellm.errors import RequestError
from edgellm.parsing.answer_parser import AnswerFormat
from edgellm.parsing.chat_template import ChatTemplate
from edgellm.parsing.messages import normalise_messages
from edgellm.parsing.output_style import output_style
from edgellm.parsing.template_messages import messages_for_template
from edgellm.parsing.template_traits import template_traits

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
USER = {"role": "user", "content": "Weather in Köln?"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Looks", "parameters": SCHEMA}}
ARGUMENTS = {"city": 'Köln "Mitte"', "days": 2}
CALL_ID = "call_0123456789abcdef01234567"
CALL: dict[str, Any] = {
    "id": CALL_ID,
    "type": "function",
    "function": {"name": "get_weather", "arguments": json.dumps(ARGUMENTS)},
}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": CALL_ID, "content": "Sunny"}
WITH_TOOLS = sorted(set(FAMILIES) - {"DeepSeek-R1-Distill-Qwen-1.5B"})

STYLES = {
    "Qwen3-4B": ("qwen3", "hermes", False, False),
    "Qwen3-Coder-30B": ("qwen3", "qwen3_xml", False, False),
    "Llama-3.2-3B": ("none", "generic", False, False),
    "Hermes-3": ("none", "hermes", False, False),
    "Mistral-7B-v0.3": ("none", "generic", False, False),
    "DeepSeek-R1-Distill-Qwen-1.5B": ("deepseek_r1", "generic", True, True),
    "Nemotron-Nano-9B": ("nemotron", "nemotron", False, True),
}


def _render(name: str, *messages: Mapping[str, Any], **options: Any) -> str:
    template = ChatTemplate(FAMILIES[name], SPECIAL)
    normal, origins = messages_for_template(normalise_messages(messages), template_traits(template), lambda text: text)
    return template.render(normal, origins=origins, **options)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_parsers_of_a_family_are_found(name: str) -> None:
    template = ChatTemplate(FAMILIES[name], SPECIAL)
    style = output_style(template, template_traits(template), (), lambda text: None, name)
    found = (style.reasoning_parser, style.tool_parser, style.opens_reasoning, style.opens_reasoning_when_thinking)
    assert found == STYLES[name]
    assert style.shows_tools is (name in WITH_TOOLS)


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_tools_calls_and_results_are_shown(name: str) -> None:
    prompt = _render(name, USER, CALLED, RESULT, tools=[TOOL])
    for text in ("get_weather", "Köln", "days", "Sunny"):
        assert text in prompt
    assert "None" not in prompt


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_a_family_reads_what_its_template_writes(name: str) -> None:
    """A model writes calls as its template shows those of earlier turns: the parsers must find them."""
    template = ChatTemplate(FAMILIES[name], SPECIAL)
    style = output_style(template, template_traits(template), (), lambda text: None, name)
    before = _render(name, USER, add_generation_prompt=False)
    written = _render(name, USER, CALLED, add_generation_prompt=False).removeprefix(before)
    for frame in ("<|im_start|>assistant", "<|im_end|>", "<|start_header_id|>assistant<|end_header_id|>\n\n",
                  "<|eot_id|>", "</s>", "<SPECIAL_11>Assistant", "<SPECIAL_12>"):  # fmt: skip
        written = written.replace(frame, "")
    answer_format = AnswerFormat(style.reasoning_parser, style.tool_parser, tools={"get_weather": SCHEMA})
    answer = gathered(events_of(answer_format, [written]))
    assert (answer.calls, answer.text) == ([("get_weather", ARGUMENTS)], "")


def test_ids_fit_a_template_that_wants_short_ones_and_still_belong_together() -> None:
    other = {**CALL, "id": "call_other"}
    calls = {**CALLED, "tool_calls": [CALL, other]}
    prompt = _render("Mistral-7B-v0.3", USER, calls, RESULT, {**RESULT, "tool_call_id": "call_other"})
    ids = [part.split('"')[0] for part in prompt.split('"id": "')[1:]]
    results = [part.split('"')[0] for part in prompt.split('"call_id": "')[1:]]
    assert ids == results
    assert len(set(ids)) == 2
    assert all(len(one) == 9 and one.isalnum() for one in ids)
    kept = {**CALLED, "tool_calls": [{**CALL, "id": "abc123XYZ"}]}
    assert '"id": "abc123XYZ"' in _render("Mistral-7B-v0.3", USER, kept)
    assert CALL_ID not in prompt


@pytest.mark.parametrize(
    ("name", "messages", "index"),
    [
        ("Mistral-7B-v0.3", [USER, USER], 1),
        ("Mistral-7B-v0.3", [{"role": "system", "content": "x"}, USER], 0),
        ("Llama-3.2-3B", [USER, {**CALLED, "tool_calls": [CALL, CALL]}], 1),
        ("Mistral-7B-v0.3", [USER, {"role": "assistant", "content": "Hi"}, {"role": "assistant", "content": "Hi"}], 2),
    ],
)
def test_a_refused_message_is_named(name: str, messages: list[dict[str, Any]], index: int) -> None:
    with pytest.raises(RequestError) as refusal:
        _render(name, *messages)
    assert refusal.value.param == f"messages[{index}]"


def test_reasoning_of_earlier_turns_goes_where_the_template_puts_it() -> None:
    thought = {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}
    assert "<think>\nHm.\n</think>\n\nYes." in _render("Qwen3-4B", USER, thought)
    assert "Hm." not in _render("DeepSeek-R1-Distill-Qwen-1.5B", USER, thought)
    inline = {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nYes."}
    assert _render("Qwen3-4B", USER, thought) == _render("Qwen3-4B", USER, inline)


def test_thinking_is_switched() -> None:
    assert _render("Qwen3-4B", USER, enable_thinking=False).endswith("<think>\n\n</think>\n\n")
    assert _render("Qwen3-4B", USER, enable_thinking=True).endswith("assistant\n")
    assert _render("Nemotron-Nano-9B", USER, enable_thinking=True).endswith("<think>\n")


def test_parts_are_joined_where_a_family_takes_strings() -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "Weather "}, {"type": "text", "text": "in Köln?"}]}
    for name in FAMILIES:
        assert _render(name, parts) == _render(name, USER)
    assert not template_traits(ChatTemplate(QWEN3)).takes_parts
