"""One answer of a model, in every protocol: the same text, reasoning, calls and counts, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter
from tests.unit.api.asgi_client import AsgiClient, application, run
from tests.unit.serving.scripted_lane import ScriptedLane, say_words

from edgellm.parsing.output_style import OutputStyle

QWEN = OutputStyle(reasoning_parser="qwen3", tool_parser="hermes", shows_tools=True)
PIECES = (
    "<thi",
    "nk>Let me see.</think>",
    "I look. ",
    '<tool_call>\n{"name": "weather", "argu',
    'ments": {"city": "Oslo"}}\n</tool_call>',
)
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
ANTHROPIC_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


def data_of(stream: bytes) -> list[dict[str, Any]]:
    lines = stream.decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def message_of(events: list[dict[str, Any]]) -> Any:
    """The message that Anthropic's client makes of a stream."""
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in events:
        if event["type"] != "ping":
            parsed = ANTHROPIC_EVENT.validate_python(event)
            snapshot = accumulate_event(event=parsed, current_snapshot=snapshot, json_bufs=buffers)
    return snapshot.to_dict()


async def chat(client: AsgiClient) -> tuple[str, str, str, Any, int]:
    function = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
    answer = (await client.chat(tools=[function], enable_thinking=True)).json
    message = answer["choices"][0]["message"]
    [call] = message["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    tokens = answer["usage"]["completion_tokens"]
    return message["reasoning_content"], message["content"], call["function"]["name"], arguments, tokens


async def responses(client: AsgiClient, *, stream: bool) -> tuple[str, str, str, Any, int]:
    tool = {"type": "function", "name": "weather", "parameters": PARAMETERS}
    asked = {"model": "tiny", "input": "Hi", "tools": [tool], "reasoning": {"effort": "high"}, "stream": stream}
    answer = await client.post("/v1/responses", asked)
    response = data_of(answer.body)[-1]["response"] if stream else answer.json
    reasoning, message, call = response["output"]
    tokens = response["usage"]["output_tokens"]
    arguments = json.loads(call["arguments"])
    return reasoning["content"][0]["text"], message["content"][0]["text"], call["name"], arguments, tokens


async def anthropic(client: AsgiClient, *, stream: bool) -> tuple[str, str, str, Any, int]:
    tool = {"name": "weather", "input_schema": PARAMETERS}
    asked = {
        "model": "tiny",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [tool],
        "thinking": {"type": "adaptive"},
        "stream": stream,
    }
    answer = await client.post("/v1/messages", asked)
    message = message_of(data_of(answer.body)) if stream else answer.json
    thinking, text, call = message["content"]
    assert message["stop_reason"] == "tool_use"
    return thinking["thinking"], text["text"], call["name"], call["input"], message["usage"]["output_tokens"]


def test_every_protocol_says_the_same() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words(*PIECES), output_style=QWEN)) as (client, _):
            expected = await chat(client)
            assert expected == ("Let me see.", expected[1], "weather", {"city": "Oslo"}, len(PIECES))
            assert expected[1].strip() == "I look."
            for stream in (False, True):
                assert await responses(client, stream=stream) == expected
                assert await anthropic(client, stream=stream) == expected

    run(scenario())


CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
CUT = '<tool_call>\n{"name": "weather", "arguments": {"ci'
FUNCTION = {"name": "weather", "parameters": PARAMETERS}
USER = [{"role": "user", "content": "Hi"}]
ENFORCED: list[tuple[str, dict[str, Any]]] = [
    *(
        ("/v1/chat/completions", {"messages": USER, "tools": [{"type": "function", "function": FUNCTION}], **choice})
        for choice in (
            {"tool_choice": "required"},
            {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
        )
    ),
    *(
        ("/v1/responses", {"input": "Hi", "tools": [{"type": "function", **FUNCTION}], **choice})
        for choice in ({"tool_choice": "required"}, {"tool_choice": {"type": "function", "name": "weather"}})
    ),
    *(
        (
            "/v1/messages",
            {"max_tokens": 9, "messages": USER, "tools": [{"name": "weather", "input_schema": PARAMETERS}], **choice},
        )
        for choice in ({"tool_choice": {"type": "any"}}, {"tool_choice": {"type": "tool", "name": "weather"}})
    ),
]


@pytest.mark.parametrize("calls", [0, 1])
@pytest.mark.parametrize(("path", "body"), ENFORCED)
def test_an_enforced_call_that_was_cut_off_is_no_text(path: str, body: dict[str, Any], calls: int) -> None:
    async def scenario() -> None:
        words = [*[CALL, "\n"] * calls, *CUT]
        async with application(ScriptedLane(say_words(*words, reason="length"), output_style=QWEN)) as (client, _):
            whole = (await client.post(path, {"model": "tiny", **body})).body.decode()
            stream = (await client.post(path, {"model": "tiny", "stream": True, **body})).body.decode()
            for answer in (whole, stream):
                assert "tool_call>" not in answer
                assert "weather" in answer or not calls
                assert "Oslo" in answer or not calls
                assert any(told in answer for told in ('"length"', '"max_tokens"', '"incomplete"'))

    run(scenario())


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_of_the_models_own_that_was_cut_off_stays_text_in_its_place(stream: bool) -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("I look.", CALL, *CUT, reason="length"), output_style=QWEN)
        async with application(lane) as (client, _):
            tools = [{"name": "weather", "input_schema": PARAMETERS}]
            body = {"model": "tiny", "max_tokens": 9, "messages": USER, "tools": tools, "stream": stream}
            answer = await client.post("/v1/messages", body)
            message = message_of(data_of(answer.body)) if stream else answer.json
            assert [(block["type"], block.get("text")) for block in message["content"]] == [
                ("text", "I look."),
                ("tool_use", None),
                ("text", CUT),
            ]
            assert message["stop_reason"] == "max_tokens"

    run(scenario())


@pytest.mark.parametrize(
    ("path", "body", "may_leave_it_out"),
    [
        ("/v1/chat/completions", {"messages": USER}, True),
        ("/v1/responses", {"input": "Hi"}, True),
        ("/v1/completions", {"prompt": "Hi"}, False),
        ("/v1/embeddings", {"input": "Hi"}, False),
        ("/v1/messages", {"messages": USER, "max_tokens": 9}, False),
    ],
)
def test_who_may_leave_out_the_only_model(path: str, body: dict[str, Any], may_leave_it_out: bool) -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("a"))) as (client, _):
            answer = await client.post(path, body)
            assert answer.status == (200 if may_leave_it_out else 400)
            assert may_leave_it_out or "model is required" in answer.json["error"]["message"]

    run(scenario())
