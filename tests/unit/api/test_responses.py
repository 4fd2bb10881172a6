"""/v1/responses: answers whole and streamed, items of earlier turns, and responses that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from openai.types.responses import Response as OpenAiResponse
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter
from tests.unit.api.answers import ALL_KINDS, TEXT_AROUND_A_CALL, USAGE, named_events
from tests.unit.api.asgi_client import Answer, AsgiClient, application, run
from tests.unit.serving.scripted_lane import (
    PROMPT_TOKENS,
    ScriptedGeneration,
    ScriptedLane,
    say_words,
)

from edgellm.api.keys import ApiKey
from edgellm.api.response_format import ResponseHead, ResponseStream, whole_response
from edgellm.api.settings import ApiSettings
from edgellm.api.whole_format import Choice
from edgellm.errors import InvalidSchemaError, RequestError, WorkerFailedError
from edgellm.parsing.answer_events import (
    AnswerEnd,
)
from edgellm.runtime.generation import ChatPrompt
from edgellm.runtime.outputs import LogprobEntry, StreamDelta

PATH = "/v1/responses"
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}, "strict": True}
CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
STREAM_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


async def ask(client: AsgiClient, input: Any = "Hi", headers: Sequence[tuple[str, str]] = (), **fields: Any) -> Answer:
    return await client.post(PATH, {"model": "tiny", "input": input, **fields}, headers)


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """Checked against the official client's own types; numbered without a gap."""
    events = [data for _, data in named_events(stream)]
    for event in events:
        STREAM_EVENT.validate_python(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def messages_of(lane: ScriptedLane) -> list[dict[str, Any]]:
    prompt = lane.generations[-1].request.prompt
    assert isinstance(prompt, ChatPrompt)
    return [dict(message) for message in prompt.messages]


def test_a_whole_answer_is_a_response() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("Hel", "lo"))) as (client, _):
            answer = await ask(client, headers=[("x-request-id", "my-id")], metadata={"k": "v"}, temperature=0.5)
            assert answer.status == 200
            body = answer.json
            OpenAiResponse.model_validate(body)
            assert (body["id"], body["object"], body["model"]) == ("resp_my-id", "response", "tiny")
            assert (body["status"], body["error"], body["incomplete_details"]) == ("completed", None, None)
            assert body["output"] == [
                {
                    "id": "msg_my-id_0",
                    "type": "message",
                    "status": "completed",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}],
                }
            ]
            assert body["usage"]["input_tokens"] == PROMPT_TOKENS
            assert body["usage"]["output_tokens"] == 2
            assert (body["temperature"], body["metadata"], body["store"]) == (0.5, {"k": "v"}, True)
            assert (body["truncation"], body["previous_response_id"]) == ("disabled", None)

    run(scenario())


def test_a_stream_says_the_same_in_order() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("Hel", "lo"))) as (client, _):
            events = events_of((await ask(client, stream=True)).body)
            kinds = [event["type"].removeprefix("response.") for event in events]
            deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
            assert [kind for kind in kinds if kind != "output_text.delta"] == [
                "created",
                "in_progress",
                "output_item.added",
                "content_part.added",
                "output_text.done",
                "content_part.done",
                "output_item.done",
                "completed",
            ]
            assert "".join(deltas) == "Hello"
            response = events[-1]["response"]
            assert response["output"][0]["content"][0]["text"] == "Hello"
            assert response["usage"]["output_tokens"] == 2
            assert events[0]["response"]["status"] == "in_progress"

    run(scenario())


def test_an_answer_that_reached_its_length_is_incomplete() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("a", reason="length"))) as (client, _):
            whole = (await ask(client, max_output_tokens=5)).json
            assert (whole["status"], whole["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
            assert whole["output"][0]["status"] == "incomplete"
            last = events_of((await ask(client, stream=True)).body)[-1]
            assert (last["type"], last["response"]["output"][0]["status"]) == ("response.incomplete", "incomplete")

    run(scenario())


def head(**changes: Any) -> ResponseHead:
    # The fields of the request that the client's type of a response needs.
    settings = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    whole = {"request_id": "r", "created_at": 1, "model": "tiny", "settings": settings, "top_logprobs": None}
    return ResponseHead(**{**whole, "seals_reasoning": False, **changes})


def test_items_of_every_kind_are_the_same_whole_and_streamed() -> None:
    ended: list[dict[str, Any]] = []
    stream = ResponseStream(head(seals_reasoning=True), ended.append)
    sent = stream.opening(10) + stream.events(0, ALL_KINDS, None).encode() + stream.ending(USAGE)
    events = events_of(sent)
    choice = Choice()
    choice.take_events(ALL_KINDS, None)
    whole = whole_response(head(seals_reasoning=True), ended.append, [choice], USAGE)
    streamed = events[-1]["response"]
    assert whole["output"] == streamed["output"]
    assert [response["output"] for response in ended] == [whole["output"]] * 2
    assert [item["type"] for item in whole["output"]] == ["reasoning", "message", "function_call", "function_call"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == whole["output"]
    arguments = [event["arguments"] for event in events if event["type"] == "response.function_call_arguments.done"]
    assert arguments == ['{"city":"Oslo"}', "{}"]
    joined = "".join(
        event["delta"]
        for event in events
        if event["type"].startswith("response.function_call_arg") and "delta" in event
    )
    assert joined == '{"city":"Oslo"}{}'
    assert whole["usage"]["output_tokens_details"] == {"reasoning_tokens": 2}
    OpenAiResponse.model_validate(whole)


def test_text_after_a_call_comes_after_it_whole_and_streamed() -> None:
    logprobs = [[LogprobEntry(1, -0.5, "a", b"a")]]
    choice, stream = Choice(), ResponseStream(head(top_logprobs=0), lambda response: None)
    sent = stream.opening(10)
    for event in TEXT_AROUND_A_CALL:
        sent += stream.events(0, [event], logprobs).encode()
        choice.take_events([event], logprobs)
    streamed = events_of(sent + stream.ending(USAGE))[-1]["response"]
    whole = whole_response(head(top_logprobs=0), lambda response: None, [choice], USAGE)
    assert [item["type"] for item in whole["output"]] == ["message", "function_call", "message"]
    assert [item["content"][0]["text"] for item in whole["output"][::2]] == ["I look.", "And now?"]
    assert whole["output"][0] == streamed["output"][0]
    assert whole["output"][1] == streamed["output"][1]
    assert whole["output"][2]["content"] == streamed["output"][2]["content"]
    assert [item["status"] for item in whole["output"]] == ["completed", "completed", "incomplete"]


def test_an_empty_answer_is_an_empty_message() -> None:
    stream = ResponseStream(head(), lambda response: None)
    events = events_of(stream.opening(1) + stream.events(0, [AnswerEnd("stop")], None).encode() + stream.ending(USAGE))
    choice = Choice()
    choice.take_events([AnswerEnd("stop")], None)
    whole = whole_response(head(), lambda response: None, [choice], USAGE)
    assert events[-1]["response"]["output"] == whole["output"]
    assert whole["output"][0]["content"][0]["text"] == ""


@pytest.mark.parametrize("text", ["a", ""])
def test_log_probabilities_of_tokens_after_the_last_text_come_with_it(text: str) -> None:
    """As of a stop string, which is no part of the text."""
    deltas = [
        StreamDelta(text, [1], logprobs=[[LogprobEntry(1, -0.5, "a", b"a")]]),
        StreamDelta("", [2], logprobs=[[LogprobEntry(2, -1.5, "EN", b"EN")]]),
        StreamDelta("", [3], finished=True, finish_reason="stop", logprobs=[[LogprobEntry(3, -2.5, "D", b"D")]]),
    ]
    choice, stream = Choice(), ResponseStream(head(top_logprobs=0), lambda response: None)
    sent = stream.opening(10)
    for delta in deltas:
        sent += stream.delta(0, delta).encode()
        choice.take(delta)
    events = events_of(sent + stream.ending(USAGE))
    whole = whole_response(head(top_logprobs=0), lambda response: None, [choice], USAGE)
    [part] = whole["output"][0]["content"]
    assert (part["text"], [entry["token"] for entry in part["logprobs"]]) == (text, ["a", "EN", "D"])
    assert events[-1]["response"]["output"][0]["content"] == [part]
    said = [event for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(event["delta"] for event in said) == text
    assert [entry for event in said for entry in event["logprobs"]] == part["logprobs"]


def test_log_probabilities_come_with_the_text_when_asked_for() -> None:
    def say(generation: ScriptedGeneration) -> None:
        entry = LogprobEntry(1, -0.5, "a", b"a")
        generation.give(StreamDelta(text="a", token_ids=[1], logprobs=[[entry, entry]]))
        generation.finish()

    async def scenario() -> None:
        lane = ScriptedLane(say)
        async with application(lane) as (client, _):
            include = ["message.output_text.logprobs"]
            whole = (await ask(client, include=include, top_logprobs=1)).json
            [part] = whole["output"][0]["content"]
            assert [(entry["token"], len(entry["top_logprobs"])) for entry in part["logprobs"]] == [("a", 1)]
            events = events_of((await ask(client, include=include, top_logprobs=1, stream=True)).body)
            deltas = [event for event in events if event["type"] == "response.output_text.delta"]
            assert deltas[0]["logprobs"] == part["logprobs"]
            assert events[-1]["response"]["output"][0]["content"] == [part]
            assert (await ask(client, top_logprobs=1)).error["param"] == "top_logprobs"

    run(scenario())


def test_a_failure_after_the_first_byte_is_a_failed_response() -> None:
    def break_off(generation: ScriptedGeneration) -> None:
        generation.say("Hel")
        generation.fail(WorkerFailedError("The model's worker failed."))

    async def scenario() -> None:
        async with application(ScriptedLane(break_off)) as (client, _):
            answer = await ask(client, stream=True, headers=[("x-request-id", "r")])
            last = events_of(answer.body)[-1]
            assert last["type"] == "response.failed"
            assert last["response"]["status"] == "failed"
            assert last["response"]["error"]["message"] == "The model's worker failed."
            assert (await client.get(f"{PATH}/resp_r")).status == 404

    run(scenario())


def test_items_of_earlier_turns_become_messages() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("a"))
        async with application(lane) as (client, _):
            items = [
                {"role": "developer", "content": "Be kind."},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
                {
                    "type": "reasoning",
                    "id": "rs_1",
                    "summary": [],
                    "content": [{"type": "reasoning_text", "text": "Look."}],
                },
                {
                    "type": "message",
                    "id": "msg_1",
                    "role": "assistant",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
                },
                {**CALL, "id": "fc_1", "status": "completed"},
                {**CALL, "call_id": "c2"},
                {"type": "function_call_output", "call_id": "c1", "output": "12°"},
                {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "dry"}]},
            ]
            assert (await ask(client, items, instructions="Be brief.")).status == 200
            function = {"name": "weather", "arguments": "{}"}
            assert messages_of(lane) == [
                {"role": "system", "content": "Be brief."},
                {"role": "developer", "content": "Be kind."},
                {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "I look."}],
                    "reasoning_content": "Look.",
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": function},
                        {"id": "c2", "type": "function", "function": function},
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "12°"},
                {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "dry"}]},
            ]

    run(scenario())


def test_sealed_reasoning_comes_back() -> None:
    stream = ResponseStream(head(seals_reasoning=True), lambda response: None)
    events = events_of(stream.opening(1) + stream.events(0, ALL_KINDS, None).encode() + stream.ending(USAGE))
    sealed = events[-1]["response"]["output"][0]["encrypted_content"]

    async def scenario() -> None:
        lane = ScriptedLane(say_words("a"))
        async with application(lane) as (client, _):
            item = {"type": "reasoning", "summary": [], "encrypted_content": sealed}
            question = {"role": "user", "content": "?"}
            assert (await ask(client, [question, item, CALL, question])).status == 200
            assert messages_of(lane)[1]["reasoning_content"] == "Let me see."
            for foreign in ("gAAAAABx", "edgellm.%%", sealed[:-3] + "_"):
                refused = await ask(client, [question, {**item, "encrypted_content": foreign}])
                assert (refused.status, refused.error["param"]) == (400, "input[1].encrypted_content")

    run(scenario())


def test_a_kept_response_is_built_on_shown_and_deleted() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("Hello"))
        async with application(lane) as (client, _):
            first = (await ask(client, "Hi", instructions="Be brief.", stream=False)).json
            streamed = await ask(client, "And?", previous_response_id=first["id"], stream=True)
            second = events_of(streamed.body)[-1]["response"]
            assert second["previous_response_id"] == first["id"]
            third = (await ask(client, "So?", previous_response_id=second["id"])).json
            assert [(message["role"], message["content"]) for message in messages_of(lane)] == [
                ("user", "Hi"),
                ("assistant", "Hello"),
                ("user", "And?"),
                ("assistant", "Hello"),
                ("user", "So?"),
            ]
            shown = await client.get(f"{PATH}/{third['id']}")
            assert (shown.status, shown.json) == (200, third)
            assert (await client.request("DELETE", f"{PATH}/{third['id']}")).json["deleted"] is True
            assert (await client.get(f"{PATH}/{third['id']}")).error["code"] == "not_found"
            # An answer stands by itself: those before it may go.
            assert (await client.request("DELETE", f"{PATH}/{first['id']}")).status == 200
            assert (await ask(client, "So?", previous_response_id=second["id"])).status == 200

    run(scenario())


def test_what_is_not_to_be_kept_is_not() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("Hello"))) as (client, _):
            response = (await ask(client, store=False)).json
            assert response["store"] is False
            missing = await ask(client, previous_response_id=response["id"])
            assert (missing.status, missing.error["param"]) == (404, "previous_response_id")

    run(scenario())


def test_a_server_that_keeps_nothing_says_so() -> None:
    async def scenario() -> None:
        settings = ApiSettings(stored_responses_max=0)
        async with application(ScriptedLane(say_words("Hello")), settings=settings) as (client, _):
            assert (await ask(client)).json["store"] is False
            assert (await ask(client, store=False)).status == 200
            for fields in ({"store": True}, {"previous_response_id": "resp_1"}):
                refused = await ask(client, **fields)
                assert (refused.status, refused.error["code"]) == (400, "unsupported_parameter")
                assert refused.error["param"] == next(iter(fields))

    run(scenario())


def test_another_clients_response_is_not_there() -> None:
    async def scenario() -> None:
        keys = (ApiKey.of("me", "my-key"), ApiKey.of("you", "your-key"))
        lane = ScriptedLane(say_words("Hello"))
        async with application(lane, settings=ApiSettings(api_keys=keys)) as (client, _):
            mine, yours = [("x-api-key", "my-key")], [("x-api-key", "your-key")]
            kept = (await ask(client, headers=mine)).json["id"]
            assert (await client.get(f"{PATH}/{kept}", headers=yours)).status == 404
            assert (await client.request("DELETE", f"{PATH}/{kept}", headers=yours)).status == 404
            assert (await ask(client, headers=yours, previous_response_id=kept)).status == 404
            assert (await client.get(f"{PATH}/{kept}", headers=mine)).status == 200

    run(scenario())


@pytest.mark.parametrize(
    ("choice", "expected", "names"),
    [
        ("required", "required", ["weather", "clock"]),
        (
            {"type": "function", "name": "clock"},
            {"type": "function", "function": {"name": "clock"}},
            ["weather", "clock"],
        ),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "clock"}]},
            "required",
            ["clock"],
        ),
    ],
)
def test_tools_and_choices_reach_the_prompt(choice: Any, expected: Any, names: list[str]) -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("a"))
        async with application(lane) as (client, _):
            answer = await ask(client, tools=[TOOL, {**TOOL, "name": "clock"}], tool_choice=choice)
            assert answer.json["tool_choice"] == choice
            assert [tool["name"] for tool in answer.json["tools"]] == ["weather", "clock"]
            prompt = lane.generations[-1].request.prompt
            assert isinstance(prompt, ChatPrompt)
            assert prompt.tool_choice == expected
            assert [tool["function"]["name"] for tool in prompt.tools] == names

    run(scenario())


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}]},
            "unsupported_modality",
            "input[0].content[0]",
        ),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "unsupported_parameter", "input[0].type"),
        ({"input": [{"type": "web_search_call", "id": "x"}]}, "unsupported_parameter", "input[0].type"),
        ({"input": []}, "invalid_value", "input"),
        ({"tools": [{"type": "web_search"}]}, "unsupported_parameter", "tools[0].type"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "x"}}, "invalid_value", "tool_choice.name"),
        ({"background": True}, "unsupported_parameter", "background"),
        ({"conversation": "conv_1"}, "unsupported_parameter", "conversation"),
        ({"truncation": "auto"}, "unsupported_parameter", "truncation"),
        ({"prompt": {"id": "p"}}, "unsupported_parameter", "prompt"),
        ({"include": ["web_search_call.action.sources"]}, "unsupported_parameter", "include[0]"),
        ({"reasoning": {"summary": "detailed"}}, "unsupported_parameter", "reasoning.summary"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "invalid_value", "text.format.schema"),
        ({"previous_response_id": "resp_1"}, "not_found", "previous_response_id"),
        (
            {"input": [{"role": "user", "content": "ok"}, {"role": "user", "content": "too long"}]},
            "context_length_exceeded",
            "input",
        ),
        (
            {"stream_options": {"include_obfuscation": True}, "stream": True},
            "unsupported_parameter",
            "stream_options.include_obfuscation",
        ),
        ({"messages": []}, "unknown_parameter", "messages"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, Any], code: str, param: str) -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("a"))) as (client, _):
            answer = await client.post(PATH, {"model": "tiny", "input": "Hi", **fields})
            assert (answer.error["code"], answer.error["param"]) == (code, param)

    run(scenario())


def test_a_refused_schema_is_named_as_it_was_asked() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with application(lane) as (client, _):
            lane.refusal = InvalidSchemaError(
                "guided_decoding.json_schema.not is not supported", param="guided_decoding.json_schema.not"
            )
            text = {"format": {"type": "json_schema", "name": "x", "schema": {"not": {}}}}
            refused = await ask(client, text=text)
            assert (refused.error["code"], refused.error["param"]) == ("invalid_schema", "text.format.schema.not")

    run(scenario())


def test_reasoning_effort_turns_thinking_on() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("a"))
        async with application(lane) as (client, _):
            await ask(client, reasoning={"effort": "high", "summary": "auto"})
            params = lane.generations[-1].request.params
            assert (params.enable_thinking, params.reasoning_effort) == (True, "high")
            await ask(client, reasoning={"effort": "none"})
            assert lane.generations[-1].request.params.enable_thinking is False

    run(scenario())


def test_an_effort_is_taken_by_a_model_that_does_not_reason() -> None:
    """Coding agents send it with every request, whatever the model."""

    async def scenario() -> None:
        lane = ScriptedLane(say_words("a"), template_fields=frozenset())
        async with application(lane) as (client, _):
            assert (await ask(client, reasoning={"effort": "medium", "summary": "auto"})).status == 200
            refused = await ask(client, reasoning={"effort": "enormous"})
            assert (refused.status, refused.error["param"]) == (400, "reasoning.effort")

    run(scenario())


def test_a_result_without_its_call_is_named_by_its_call_id() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("a"))
        async with application(lane) as (client, _):
            field = "messages[1].tool_call_id"
            lane.refusal = RequestError(f"{field} must be the id of a tool call", param=field)
            orphan = {"type": "function_call_output", "call_id": "c9", "output": "x"}
            answer = await ask(client, [{"role": "user", "content": "?"}, orphan])
            assert (answer.status, answer.error["param"]) == (400, "input[1].call_id")
            assert answer.error["message"].startswith("input[1].call_id must be the id of a tool call")

    run(scenario())
