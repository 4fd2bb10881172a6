"""Tools with the real model and the real grammar: what must be called is called, what cannot be enforced is named."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from tests.models.real_model import CATALOGUE_NAME

from edgellm.errors import InvalidSchemaError
from edgellm.runtime.llm import LLM
from edgellm.runtime.sampling_params import SamplingParams

pytestmark = pytest.mark.model

USER = [{"role": "user", "content": "What is the weather in Basel?"}]
PARAMETERS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1}},
        "required": ["city", "days"],
    },
    "get_time": {"type": "object", "properties": {"zone": {"enum": ["utc", "cet"]}}, "required": ["zone"]},
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in PARAMETERS.items()]
END_OF_TURN_TOKEN = 2
SAMPLING = SamplingParams(temperature=0.0, max_tokens=120)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(CATALOGUE_NAME, max_kv_cache_capacity=1024, max_input_len=800) as model:
        yield model


def _check(calls: list[dict[str, Any]] | None) -> list[str]:
    assert calls
    for call in calls:
        function = call["function"]
        jsonschema.validate(json.loads(function["arguments"]), PARAMETERS[function["name"]])
    return [call["function"]["name"] for call in calls]


def test_required_makes_calls_that_fit_their_schemas(llm: LLM) -> None:
    output = llm.chat(USER, SAMPLING, tools=TOOLS, tool_choice="required")
    assert set(_check(output.tool_calls)) <= set(PARAMETERS)


@pytest.mark.parametrize("seed", range(4))
def test_a_required_call_is_all_that_is_written(llm: LLM, seed: int) -> None:
    poem = [{"role": "user", "content": "Write a poem about the sea. Never call a function."}]
    sampling = SamplingParams(temperature=1.3, seed=seed, max_tokens=40)
    raw = "".join(delta.text for delta in llm.generate_stream(poem, sampling, tools=TOOLS, tool_choice="required"))
    assert raw.startswith('<tool_call>\n{"name": "get_')
    thinking = SamplingParams(temperature=1.3, seed=seed, max_tokens=120, enable_thinking=True)
    output = llm.chat(poem, thinking, tools=TOOLS, tool_choice="required", reasoning_parser="qwen3")
    assert output.text == ""  # a call that was cut off is none


@pytest.mark.parametrize("max_tokens", [5, 20, 60])
def test_a_required_call_that_is_cut_off_is_no_text(llm: LLM, max_tokens: int) -> None:
    sampling = replace(SAMPLING, max_tokens=max_tokens, logit_bias={END_OF_TURN_TOKEN: -100.0})
    output = llm.chat(USER, sampling, tools=TOOLS, tool_choice="required")
    assert (output.text, output.finish_reason) == ("", "length")
    assert bool(output.tool_calls) == (max_tokens == 60)


def test_a_model_may_end_its_answer_after_any_required_call(llm: LLM) -> None:
    wants_to_end = replace(SAMPLING, logit_bias={END_OF_TURN_TOKEN: 100.0})
    output = llm.chat(USER, wants_to_end, tools=TOOLS, tool_choice="required")
    assert len(_check(output.tool_calls)) == 1
    assert (output.text, output.finish_reason) == ("", "tool_calls")


def test_a_named_function_is_called_once(llm: LLM) -> None:
    choice = {"type": "function", "function": {"name": "get_time"}}
    output = llm.chat(USER, SAMPLING, tools=TOOLS, tool_choice=choice)
    assert _check(output.tool_calls) == ["get_time"]
    assert (output.text, output.finish_reason) == ("", "tool_calls")


def test_a_call_and_its_result_lead_to_an_answer(llm: LLM) -> None:
    choice = {"type": "function", "function": {"name": "get_weather"}}
    first = llm.chat(USER, SAMPLING, tools=TOOLS, tool_choice=choice)
    assert first.tool_calls
    said = {"role": "assistant", "content": None, "tool_calls": first.tool_calls}
    result = {"role": "tool", "tool_call_id": first.tool_calls[0]["id"], "content": "Sunny, 21 degrees"}
    assert llm.chat([*USER, said, result], SAMPLING, tools=TOOLS).text


FORM = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
GUIDES: dict[str, tuple[dict[str, Any], str]] = {
    "a schema": ({"json_schema": FORM}, r'\{\s*"a"\s*:\s*(true|false)\s*\}'),
    "an object": ({"json_object": True}, r"\s*\{.*"),
    "an expression": ({"regex": "[a-c]{2,4}"}, "[a-c]{2,4}"),
    "a grammar": ({"ebnf": 'root ::= "yes" | "no"'}, "yes|no"),
    "a choice": ({"choice": ["red", "green"]}, "red|green"),
    "a tag": (
        {"structural_tag": {"type": "structural_tag", "format": {"type": "const_string", "value": "fixed"}}},
        "fixed",
    ),
}


@pytest.mark.parametrize("kind", GUIDES)
def test_an_answer_of_a_form_or_a_call(llm: LLM, kind: str) -> None:
    guide, pattern = GUIDES[kind]
    sampling = SamplingParams(temperature=1.0, seed=1, max_tokens=80, guided_decoding=guide)
    output = llm.chat(USER, sampling, tools=TOOLS)
    if output.tool_calls:
        _check(output.tool_calls)
    elif output.finish_reason == "stop":
        assert re.fullmatch(pattern, output.text, re.DOTALL)


@pytest.mark.parametrize("kind", GUIDES)
def test_a_form_may_come_after_reasoning(llm: LLM, kind: str) -> None:
    guide, pattern = GUIDES[kind]
    sampling = SamplingParams(temperature=1.0, seed=1, max_tokens=80, guided_decoding=guide, enable_thinking=True)
    output = llm.chat(USER, sampling, reasoning_parser="qwen3")
    if output.finish_reason == "stop":
        assert re.fullmatch(pattern, output.text, re.DOTALL)


@pytest.mark.parametrize("schema", [{"not": {}}, {"type": "array", "uniqueItems": True}])
def test_a_parameter_that_cannot_be_enforced_is_named(llm: LLM, schema: dict[str, Any]) -> None:
    parameters = {"type": "object", "properties": {"a": schema}}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    with pytest.raises(InvalidSchemaError) as refusal:
        llm.chat(USER, SAMPLING, tools=[*TOOLS, tool], tool_choice="required")
    assert (refusal.value.param or "").startswith("tools[2].function.parameters.properties.a.")
    assert str(refusal.value).startswith(refusal.value.param or "?")
    # Where the model may choose, its calls are read and not enforced.
    assert llm.chat(USER, SAMPLING, tools=[*TOOLS, tool]).finish_reason
