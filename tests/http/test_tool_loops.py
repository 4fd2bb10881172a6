"""Rounds of tools with the official clients: the model calls, the client answers, the model goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from openai.lib._tools import pydantic_function_tool
from pydantic import BaseModel
from tests.http.daemon_process import MODEL, Daemon

CITY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
QUESTION = "How is the weather in Oslo?"
WEATHER: Any = {"name": "get_weather", "description": "Weather of a city.", "input_schema": CITY_SCHEMA}
CLOCK: Any = {"name": "get_time", "description": "Time of a city.", "input_schema": CITY_SCHEMA}
GREEDY: dict[str, Any] = {"model": MODEL, "max_tokens": 120, "extra_body": {"temperature": 0}}
FUNCTIONS: list[Any] = [
    {"type": "function", "name": name, "description": "Of a city.", "parameters": CITY_SCHEMA, "strict": True}
    for name in ("get_weather", "get_time")
]
RESPONSES_GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_output_tokens": 120}


@pytest.fixture
def claude(daemon: Daemon) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=daemon.url, api_key="none", max_retries=0) as made:
        yield made


def test_anthropic_calls_and_goes_on(claude: anthropic.Anthropic) -> None:
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    asked: dict[str, Any] = {"tools": [WEATHER, CLOCK], **GREEDY}
    message = claude.messages.create(
        messages=messages, tool_choice={"type": "any", "disable_parallel_tool_use": True}, **asked
    )
    assert message.stop_reason == "tool_use"
    uses = [block for block in message.content if block.type == "tool_use"]
    assert uses
    assert {use.name for use in uses} <= {"get_weather", "get_time"}
    assert all(isinstance(use.input["city"], str) for use in uses)
    results = [
        {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "12 degrees"}]}
        for use in uses
    ]
    messages += [message.to_param(), {"role": "user", "content": results}]
    answer = claude.messages.create(messages=messages, tool_choice={"type": "none"}, **asked)
    assert answer.stop_reason in ("end_turn", "max_tokens")
    assert [block.type for block in answer.content] == ["text"]


def test_anthropic_streams_the_same_call(claude: anthropic.Anthropic) -> None:
    asked: dict[str, Any] = {
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": [WEATHER, CLOCK],
        "tool_choice": {"type": "tool", "name": "get_time", "disable_parallel_tool_use": True},
        **GREEDY,
    }
    whole = claude.messages.create(**asked)
    with claude.messages.stream(**asked) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    [use] = [block for block in final.content if block.type == "tool_use"]
    [whole_use] = [block for block in whole.content if block.type == "tool_use"]
    assert (use.name, use.input) == (whole_use.name, whole_use.input) == ("get_time", json.loads("".join(pieces)))
    assert final.stop_reason == "tool_use"


def test_the_tool_runner_of_anthropic_runs_the_tool(claude: anthropic.Anthropic) -> None:
    asked: list[str] = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Weather of a city.

        Args:
            city: The city.
        """
        asked.append(city)
        return "12 degrees"

    runner = claude.beta.messages.tool_runner(
        messages=[{"role": "user", "content": QUESTION}],
        tools=[get_weather],
        tool_choice={"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True},
        max_iterations=2,
        **GREEDY,
    )
    answers = list(runner)
    assert len(answers) == 2
    assert asked
    assert all(answer.stop_reason in ("tool_use", "max_tokens") for answer in answers)


def test_responses_call_and_go_on(client: openai.OpenAI) -> None:
    first = client.responses.create(
        input=QUESTION, tools=FUNCTIONS, tool_choice="required", parallel_tool_calls=False, **RESPONSES_GREEDY
    )
    calls = [item for item in first.output if item.type == "function_call"]
    assert calls
    assert first.status == "completed"
    assert all(isinstance(json.loads(call.arguments)["city"], str) for call in calls)
    outputs: list[Any] = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "12 degrees"} for call in calls
    ]
    by_id = client.responses.create(
        input=outputs, previous_response_id=first.id, tools=FUNCTIONS, tool_choice="none", **RESPONSES_GREEDY
    )
    items: list[Any] = [{"role": "user", "content": QUESTION}, *first.output, *outputs]
    by_items = client.responses.create(input=items, tools=FUNCTIONS, tool_choice="none", **RESPONSES_GREEDY)
    assert by_id.output_text == by_items.output_text
    assert by_id.output_text


class GetWeather(BaseModel):
    city: str


def test_responses_stream_and_parse_the_same_call(client: openai.OpenAI) -> None:
    chat_tool = pydantic_function_tool(GetWeather)["function"]
    tool: Any = {"type": "function", **chat_tool}
    asked: dict[str, Any] = {
        "input": QUESTION,
        "tools": [tool],
        "tool_choice": {"type": "function", "name": "GetWeather"},
        **RESPONSES_GREEDY,
    }
    whole = client.responses.create(**asked)
    [call] = [item for item in whole.output if item.type == "function_call"]
    with client.responses.stream(**asked) as stream:
        events = list(stream)
    pieces = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(pieces) == call.arguments
    kinds = [event.type for event in events]
    assert kinds.index("response.function_call_arguments.done") < kinds.index("response.output_item.done")
    GetWeather.model_validate_json(call.arguments)


def test_a_result_for_no_call_is_refused_by_place(claude: anthropic.Anthropic, client: openai.OpenAI) -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "12"}
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\]\.content\[0\]\.tool_use_id"):
        claude.messages.create(messages=[{"role": "user", "content": [result]}], **GREEDY)
    output: Any = {"type": "function_call_output", "call_id": "call_1", "output": "12"}
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(input=[output], **RESPONSES_GREEDY)
    assert refused.value.param == "input[0].call_id"


def test_a_schema_that_cannot_be_enforced_is_refused_by_place(
    claude: anthropic.Anthropic, client: openai.OpenAI
) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string", "pattern": "(?=x)y"}}, "required": ["city"]}
    with pytest.raises(anthropic.BadRequestError, match=r"tools\[0\]\.input_schema"):
        claude.messages.create(
            messages=[{"role": "user", "content": QUESTION}],
            tools=[{**WEATHER, "input_schema": schema}],
            tool_choice={"type": "any"},
            **GREEDY,
        )
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(
            input=QUESTION, tools=[{**FUNCTIONS[0], "parameters": schema}], tool_choice="required", **RESPONSES_GREEDY
        )
    assert (refused.value.param or "").startswith("tools[0].parameters")
