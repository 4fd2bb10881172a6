"""Tools, reasoning and structured output in chat completions, over a lane whose model says what a test tells it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.unit.api.asgi_client import USER_MESSAGE, application, run
from tests.unit.serving.scripted_lane import ScriptedLane, say_words, spec_of, until

from edgellm.api.settings import ApiSettings
from edgellm.errors import InvalidSchemaError
from edgellm.parsing.output_style import OutputStyle
from edgellm.runtime.generation import ChatPrompt
from edgellm.runtime.outputs import StreamDelta

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CLOCK = {"type": "function", "function": {"name": "get_time"}}
WEATHER_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Basel"}}\n</tool_call>'
CLOCK_CALL = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
NAMED = {"type": "function", "function": {"name": "get_weather"}}
QWEN = OutputStyle(
    reasoning_parser="qwen3",
    tool_parser="hermes",
    shows_tools=True,
    reasoning_start_token=900,
    reasoning_end_token=901,
)
R1 = OutputStyle(reasoning_parser="deepseek_r1", opens_reasoning=True, opens_reasoning_when_thinking=True)


def _lane(*words: str, style: OutputStyle = QWEN, **changes: Any) -> ScriptedLane:
    return ScriptedLane(say_words(*words), output_style=style, **changes)


def _prompt(lane: ScriptedLane) -> ChatPrompt:
    prompt = lane.generations[-1].request.prompt
    assert isinstance(prompt, ChatPrompt)
    return prompt


def _guide(lane: ScriptedLane) -> Any:
    guide = lane.generations[-1].request.params.guide
    if guide is None:
        return None
    return json.loads(guide.guide)["format"] if guide.type == "structural_tag" else guide.type


@pytest.mark.parametrize("stream", [False, True])
def test_calls_come_beside_the_text(stream: bool) -> None:
    async def scenario() -> None:
        words = ["I look.", "\n", *WEATHER_CALL, *CLOCK_CALL]
        async with application(_lane(*words)) as (client, _):
            answer = await client.chat(tools=[WEATHER, CLOCK], stream=stream)
            if stream:
                *chunks, done = answer.events
                assert done == "[DONE]"
                deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
                content = "".join(delta.get("content") or "" for delta in deltas)
                calls: dict[int, dict[str, str]] = {}
                for entry in (entry for delta in deltas for entry in delta.get("tool_calls", [])):
                    call = calls.setdefault(entry["index"], {"name": "", "arguments": ""})
                    call["name"] += entry["function"].get("name", "")
                    call["arguments"] += entry["function"]["arguments"]
                told = list(calls.values())
                reason = chunks[-1]["choices"][0]["finish_reason"]
            else:
                [choice] = answer.json["choices"]
                content, reason = choice["message"]["content"], choice["finish_reason"]
                told = [call["function"] for call in choice["message"]["tool_calls"]]
                assert len({call["id"] for call in choice["message"]["tool_calls"]}) == 2
            assert (content, reason) == ("I look.", "tool_calls")
            assert told == [
                {"name": "get_weather", "arguments": '{"city": "Basel"}'},
                {"name": "get_time", "arguments": "{}"},
            ]

    run(scenario())


def test_the_template_sees_the_tools_as_they_were_sent() -> None:
    async def scenario() -> None:
        lane = _lane("a")
        async with application(lane) as (client, _):
            await client.chat(tools=[WEATHER, CLOCK])
            assert _prompt(lane).tools == [WEATHER, CLOCK]
            assert _guide(lane) is None
            await client.chat(tools=[WEATHER], tool_choice="none")
            assert not _prompt(lane).tools

    run(scenario())


def test_without_tools_and_with_none_calls_are_text() -> None:
    async def scenario() -> None:
        async with application(_lane(WEATHER_CALL)) as (client, _):
            for fields in ({}, {"tools": []}, {"tools": [WEATHER], "tool_choice": "none"}, {"tools": [CLOCK]}):
                [choice] = (await client.chat(**fields)).json["choices"]
                assert choice["message"]["content"] == WEATHER_CALL
                assert choice["finish_reason"] == "stop"

    run(scenario())


def test_auto_means_none_where_the_operator_says_so() -> None:
    async def scenario() -> None:
        lane = _lane(WEATHER_CALL)
        spec = spec_of(lane, enable_auto_tool_choice=False)
        async with application(lane, specs=[spec]) as (client, _):
            [choice] = (await client.chat(tools=[WEATHER])).json["choices"]
            assert choice["message"]["content"] == WEATHER_CALL
            assert not _prompt(lane).tools
            [choice] = (await client.chat(tools=[WEATHER], tool_choice="required")).json["choices"]
            assert choice["finish_reason"] == "tool_calls"

    run(scenario())


def test_a_call_that_must_be_made_is_enforced() -> None:
    async def scenario() -> None:
        lane = _lane(WEATHER_CALL)
        async with application(lane) as (client, _):
            await client.chat(tools=[WEATHER, CLOCK], tool_choice="required")
            guide = _guide(lane)
            assert (guide["type"], guide["at_least_one"], "stop_after_first" in guide) == (
                "tags_with_separator",
                True,
                False,
            )
            assert [tag["begin"] for tag in guide["tags"]] == [
                '<tool_call>\n{"name": "get_weather", "arguments": ',
                '<tool_call>\n{"name": "get_time", "arguments": ',
            ]
            assert guide["tags"][0]["content"]["json_schema"] == {
                **WEATHER["function"]["parameters"],  # type: ignore[index]
                "additionalProperties": False,
            }
            await client.chat(tools=[WEATHER, CLOCK], tool_choice="required", parallel_tool_calls=False)
            assert _guide(lane)["stop_after_first"] is True
            await client.chat(tools=[CLOCK, WEATHER], tool_choice=NAMED)
            assert [tag["begin"] for tag in _guide(lane)["tags"]] == [
                '<tool_call>\n{"name": "get_weather", "arguments": '
            ]
            assert _guide(lane)["stop_after_first"] is True

    run(scenario())


def test_one_call_at_most_where_they_may_not_be_parallel() -> None:
    async def scenario() -> None:
        async with application(_lane(WEATHER_CALL, CLOCK_CALL)) as (client, _):
            answer = await client.chat(tools=[WEATHER, CLOCK], parallel_tool_calls=False)
            [choice] = answer.json["choices"]
            assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["get_weather"]
            assert choice["message"]["content"] is None

    run(scenario())


def test_a_refused_schema_is_named_by_the_field_of_its_tool() -> None:
    async def scenario() -> None:
        lane = _lane("a")
        inside = "guided_decoding.structural_tag.format.tags[0].content.json_schema.properties.city.not"
        async with application(lane) as (client, _):
            lane.refusal = InvalidSchemaError(f"{inside} is not supported", param=inside)
            answer = await client.chat(tools=[CLOCK, WEATHER], tool_choice=NAMED)
            assert answer.status == 400
            assert answer.error["param"] == "tools[1].function.parameters.properties.city.not"
            assert answer.error["message"].startswith("tools[1].function.parameters.properties.city.not ")

    run(scenario())


def test_half_a_call_is_no_text_where_a_grammar_wrote_it() -> None:
    async def scenario() -> None:
        async with application(_lane('<tool_call>\n{"name": "weather", "arguments')) as (client, _):
            fields = {"tools": [WEATHER], "response_format": {"type": "json_object"}}
            [choice] = (await client.chat(**fields)).json["choices"]
            assert not choice["message"]["content"]
            [choice] = (await client.chat(tools=[WEATHER])).json["choices"]
            assert choice["message"]["content"].startswith("<tool_call>")

    run(scenario())


def test_structured_output_beside_tools_allows_both() -> None:
    async def scenario() -> None:
        lane = _lane(WEATHER_CALL)
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        async with application(lane) as (client, _):
            await client.chat(tools=[WEATHER], response_format=form)
            guide = _guide(lane)
            assert [way["type"] for way in guide["elements"]] == ["json_schema", "tags_with_separator"]
            assert guide["elements"][0]["json_schema"] == schema
            refused = await client.chat(tools=[WEATHER], response_format=form, tool_choice="required")
            assert (refused.status, refused.error["param"]) == (400, "tool_choice")
            inside = "guided_decoding.structural_tag.format.elements[0].json_schema.properties.a"
            lane.refusal = InvalidSchemaError(f"{inside} is bad", param=inside)
            refused = await client.chat(tools=[WEATHER], response_format=form)
            assert refused.error["param"] == "response_format.json_schema.schema.properties.a"

    run(scenario())


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_comes_apart_and_is_counted(stream: bool) -> None:
    async def scenario() -> None:
        lane = ScriptedLane(output_style=QWEN)

        def script(generation: Any) -> None:
            for text, ids in (
                ("<think>", [900]),
                ("Hm", [1]),
                (".\n</think>\n", [2, 901, 3]),
                ("Yes", [4]),
                (".", [5]),
            ):
                generation.give(StreamDelta(text=text, token_ids=ids))
            generation.finish()

        lane.script = script
        async with application(lane) as (client, _):
            fields = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
            answer = await client.chat(**fields)
            if stream:
                *chunks, usage, _ = answer.events
                deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
                reasoning = "".join(delta.get("reasoning_content", "") for delta in deltas)
                content = "".join(delta.get("content") or "" for delta in deltas)
                counts = usage["usage"]
            else:
                [choice] = answer.json["choices"]
                reasoning, content = choice["message"]["reasoning_content"], choice["message"]["content"]
                counts = answer.json["usage"]
            assert (reasoning, content) == ("Hm.", "Yes.")
            assert counts["completion_tokens_details"] == {"reasoning_tokens": 4}
            assert counts["completion_tokens"] == 7

    run(scenario())


def test_an_answer_that_begins_inside_reasoning() -> None:
    async def scenario() -> None:
        lane = _lane("Hm.</think>", "Yes.", style=R1)
        async with application(lane) as (client, _):
            [choice] = (await client.chat()).json["choices"]
            assert (choice["message"]["reasoning_content"], choice["message"]["content"]) == ("Hm.", "Yes.")
            # A raw prompt, or one that goes on with what was said, has no block opened by the template.
            [choice] = (await client.chat(add_generation_prompt=False)).json["choices"]
            assert choice["message"]["content"] == "Hm.</think>Yes."

    run(scenario())


def test_what_is_enforced_comes_after_the_reasoning() -> None:
    async def scenario() -> None:
        lane = _lane("Hm.</think>", "{}", style=R1)
        async with application(lane) as (client, _):
            [choice] = (await client.chat(response_format={"type": "json_object"})).json["choices"]
            assert choice["message"]["content"] == "{}"
            thought, form = _guide(lane)["elements"]
            assert (thought["begin"], thought["end"]) == ("", "</think>")
            assert form == {"type": "json_schema", "json_schema": {"type": "object"}}
        lane = _lane("{}", style=QWEN)
        async with application(lane) as (client, _):
            await client.chat(response_format={"type": "json_object"})
            assert _guide(lane) == "json_object"
            await client.chat(response_format={"type": "json_object"}, enable_thinking=True)
            form, reasoned = _guide(lane)["elements"]
            assert form["type"] == "json_schema"
            assert reasoned["elements"][0]["begin"] == "<think>"

    run(scenario())


def test_a_runtime_without_tags_enforces_from_the_first_token_or_refuses() -> None:
    async def scenario() -> None:
        lane = _lane("{}", style=R1, guided_decoding=("json_object",))
        async with application(lane) as (client, _):
            [choice] = (await client.chat(response_format={"type": "json_object"})).json["choices"]
            assert choice["message"]["content"] == "{}"
            answer = await client.chat(tools=[WEATHER], tool_choice="required")
            assert (answer.status, answer.error["code"]) == (400, "unsupported_parameter")

    run(scenario())


@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({}, False),
        ({"enable_thinking": True}, True),
        ({"reasoning_effort": "low"}, True),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "high", "enable_thinking": False}, False),
        ({"chat_template_kwargs": {"enable_thinking": True}}, True),
    ],
)
def test_an_effort_asks_for_thinking(fields: dict[str, Any], thinks: bool) -> None:
    async def scenario() -> None:
        lane = _lane("a")
        async with application(lane) as (client, _):
            await client.chat(**fields)
            params = lane.generations[-1].request.params
            assert params.enable_thinking is thinks
            assert params.reasoning_effort == fields.get("reasoning_effort", "")

    run(scenario())


def test_marks_that_are_control_tokens_are_let_through() -> None:
    async def scenario() -> None:
        for special in (False, True):
            lane = _lane("a", style=OutputStyle(shows_tools=True, special_marks=special))
            async with application(lane) as (client, _):
                await client.chat(tools=[WEATHER])
                assert lane.generations[-1].request.params.skip_special_tokens is not special
                await client.chat()
                assert lane.generations[-1].request.params.skip_special_tokens

    run(scenario())


def test_a_call_that_is_held_back_leaves_no_silence() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(output_style=QWEN)
        async with application(lane, settings=ApiSettings(heartbeat_seconds=0.01)) as (client, _):
            exchange = client.start_chat(tools=[WEATHER], stream=True)
            await until(lambda: bool(lane.generations))
            generation = lane.generations[0]
            for character in WEATHER_CALL:
                generation.say(character)
                await asyncio.sleep(0.002)
            generation.finish()
            answer = await exchange.done()
            beats = answer.body.split(b"data: ")[0].count(b": waiting")
            assert beats > 1
            assert answer.events[-2]["choices"][0]["finish_reason"] == "tool_calls"

    run(scenario())


def test_the_operator_chooses_parsers() -> None:
    async def scenario() -> None:
        lane = _lane("<think>a</think>", f"<TOOLCALL>[{CLOCK_CALL[11:-12]}]</TOOLCALL>")
        spec = spec_of(lane, reasoning_parser="none", tool_call_parser="nemotron")
        async with application(lane, specs=[spec]) as (client, _):
            [choice] = (await client.chat(tools=[CLOCK])).json["choices"]
            assert choice["message"]["content"] == "<think>a</think>"
            assert choice["finish_reason"] == "tool_calls"
            shown = (await client.get("/v1/models/tiny")).json["edgellm"]
            assert (shown["reasoning_parser"], shown["tool_call_parser"]) == ("none", "nemotron")

    run(scenario())


def test_a_model_that_was_lost_is_still_described() -> None:
    async def scenario() -> None:
        lane = _lane("a")
        async with application(lane) as (client, engine):
            engine.model("tiny").lane_lost(lane)
            assert (await client.chat()).status == 503
            answer = await client.get("/v1/models")
            assert answer.status == 200
            [shown] = answer.json["data"]
            assert (shown["edgellm"]["state"], shown["edgellm"]["reasoning_parser"]) == ("unavailable", "qwen3")

    run(scenario())


def test_our_own_answers_are_taken_back() -> None:
    async def scenario() -> None:
        lane = _lane("<think>Hm.</think>", WEATHER_CALL)
        async with application(lane) as (client, _):
            message = (await client.chat(tools=[WEATHER])).json["choices"][0]["message"]
            result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "Sunny"}
            answer = await client.chat(messages=[USER_MESSAGE, message, result], tools=[WEATHER])
            assert answer.status == 200
            _, assistant, tool = _prompt(lane).messages
            assert assistant["reasoning_content"] == "Hm."
            assert assistant["content"] is None
            assert assistant["tool_calls"][0]["function"]["arguments"] == '{"city": "Basel"}'
            assert tool["tool_call_id"] == message["tool_calls"][0]["id"]

    run(scenario())


def test_a_template_without_tools_gets_them_as_text() -> None:
    async def scenario() -> None:
        lane = _lane(WEATHER_CALL, style=OutputStyle())
        async with application(lane) as (client, _):
            message = (await client.chat(tools=[WEATHER])).json["choices"][0]["message"]
            assert message["tool_calls"][0]["function"]["name"] == "get_weather"
            [told] = _prompt(lane).messages
            assert "get_weather" in told["content"]
            assert told["content"].endswith(USER_MESSAGE["content"])

    run(scenario())


def test_a_choice_among_some_tools_leaves_the_others_out() -> None:
    async def scenario() -> None:
        lane = _lane(WEATHER_CALL)
        async with application(lane) as (client, _):
            named = [{"type": "function", "function": {"name": "get_weather"}}]
            choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": named}}
            assert (await client.chat(tools=[CLOCK, WEATHER], tool_choice=choice)).status == 200
            prompt = lane.generations[-1].request.prompt
            assert isinstance(prompt, ChatPrompt)
            assert prompt.tool_choice == "required"
            assert [tool["function"]["name"] for tool in prompt.tools] == ["get_weather"]
            refused = await client.chat(tools=[CLOCK], tool_choice=choice)
            assert refused.status == 400
            assert refused.error["param"] == "tool_choice.allowed_tools.tools[0].function.name"

    run(scenario())


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "custom", "custom": {"name": "sql"}}]}, "tools[0].type"),
        ({"tools": [WEATHER], "tool_choice": {"type": "custom", "custom": {"name": "sql"}}}, "tool_choice.type"),
    ],
)
def test_tools_of_other_servers_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    async def scenario() -> None:
        async with application(ScriptedLane()) as (client, _):
            refused = await client.chat(**fields)
            assert (refused.status, refused.error["code"]) == (400, "unsupported_parameter")
            assert refused.error["param"] == param

    run(scenario())
