"""One answer of a model, in every protocol: the same text, reasoning, calls and counts, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

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
    if stream:
        snapshot: Any = None
        buffers: dict[int, bytes] = {}
        for event in data_of(answer.body):
            if event["type"] != "ping":
                parsed = ANTHROPIC_EVENT.validate_python(event)
                snapshot = accumulate_event(event=parsed, current_snapshot=snapshot, json_bufs=buffers)
        message = snapshot.to_dict()
    else:
        message = answer.json
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
