"""Tools with the official OpenAI client, the real daemon and a real model that grammar makes call them."""

from __future__ import annotations

import json
from typing import Any, Literal

import openai
import pydantic
import pytest
from tests.http.daemon_process import MODEL

QUESTION: list[Any] = [{"role": "user", "content": "What is the weather in Basel?"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 16}, "unit": {"enum": ["C", "F"]}},
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
CLOCK: Any = {"type": "function", "function": {"name": "get_time"}}
ONE_CALL: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 100, "parallel_tool_calls": False}


class GetWeather(pydantic.BaseModel):
    city: Literal["Basel", "Bern"]
    days: int = pydantic.Field(ge=1, le=9)


def test_a_required_call_its_result_and_the_answer(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(
        messages=QUESTION, tools=[WEATHER, CLOCK], tool_choice="required", **ONE_CALL
    ).choices[0]
    assert first.finish_reason == "tool_calls"
    assert first.message.content is None
    [call] = first.message.tool_calls or []
    assert call.type == "function"
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_weather":
        assert set(arguments) == {"city", "unit"}
    else:
        assert (call.function.name, arguments) == ("get_time", {})
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "Sunny, 21 degrees"}
    second = client.chat.completions.create(
        messages=[*QUESTION, first.message.to_dict(), result], tools=[WEATHER, CLOCK], **ONE_CALL
    )
    assert second.choices[0].message.content


def test_a_streamed_call_says_what_a_whole_one_says(client: openai.OpenAI) -> None:
    named: Any = {"type": "function", "function": {"name": "get_weather"}}
    fields = {"messages": QUESTION, "tools": [CLOCK, WEATHER], "tool_choice": named, **ONE_CALL}
    whole = client.chat.completions.create(**fields).choices[0]
    [call] = whole.message.tool_calls or []
    assert call.type == "function"
    chunks = list(client.chat.completions.create(stream=True, **fields))
    deltas = [entry for chunk in chunks for entry in chunk.choices[0].delta.tool_calls or []]
    head, *others = deltas
    assert (head.index, head.type) == (0, "function")
    assert head.id
    assert head.function is not None
    assert head.function.name == "get_weather"
    assert all(delta.id is None for delta in others)
    told = "".join(delta.function.arguments or "" for delta in deltas if delta.function)
    assert json.loads(told) == json.loads(call.function.arguments)
    assert chunks[-1].choices[0].finish_reason == whole.finish_reason == "tool_calls"


def test_the_streaming_helper_collects_a_call(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        messages=QUESTION, tools=[openai.pydantic_function_tool(GetWeather)], tool_choice="required", **ONE_CALL
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds
    [call] = final.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, GetWeather)


def test_calls_are_parsed_into_models(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        messages=QUESTION, tools=[openai.pydantic_function_tool(GetWeather)], tool_choice="required", **ONE_CALL
    )
    [call] = answer.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, GetWeather)


def test_a_model_may_answer_in_a_form_instead_of_calling(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        messages=QUESTION, tools=[openai.pydantic_function_tool(GetWeather)], response_format=GetWeather, **ONE_CALL
    )
    message = answer.choices[0].message
    assert isinstance(message.parsed, GetWeather) or message.tool_calls


def test_what_cannot_be_enforced_is_refused_before_anything_is_said(client: openai.OpenAI) -> None:
    tool: Any = {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"not": {}}}}},
    }
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as refusal:
            client.chat.completions.create(
                messages=QUESTION, tools=[CLOCK, tool], tool_choice="required", stream=stream, **ONE_CALL
            )
        assert refusal.value.code == "invalid_schema"
        assert refusal.value.param == "tools[1].function.parameters.properties.a.not"
