"""POST /v1/messages: answers, whole and streamed, in the order and the shapes of the protocol."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.api.answers import ALL_KINDS, TEXT_AROUND_A_CALL, USAGE, named_events
from tests.unit.api.asgi_client import Answer, AsgiClient, application, run
from tests.unit.serving.scripted_lane import (
    PROMPT_TOKENS,
    ScriptedGeneration,
    ScriptedLane,
    say_words,
    settle,
    until,
)

from edgellm.api.anthropic_format import AnthropicStream, MessageHead, anthropic_answer
from edgellm.api.keys import ApiKey
from edgellm.api.settings import ApiSettings
from edgellm.api.whole_format import Choice
from edgellm.errors import InvalidSchemaError, WorkerFailedError
from edgellm.parsing.answer_events import (
    AnswerEnd,
    AnswerEvent,
    CallArguments,
    CallStart,
)
from edgellm.runtime.outputs import StreamDelta

PATH = "/v1/messages"


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "max_tokens": 20, "messages": [{"role": "user", "content": "Hi"}], **fields}


def error_of(answer: Answer) -> tuple[int, str, str]:
    whole = answer.json
    assert (set(whole), whole["type"]) == ({"type", "error", "request_id"}, "error")
    assert whole["request_id"] == answer.header("request-id") == answer.header("x-request-id")
    return answer.status, whole["error"]["type"], whole["error"]["message"]


def test_a_whole_answer_is_a_message() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("Hel", "lo"))) as (client, _):
            answer = await client.post(PATH, body(), [("x-request-id", "my-id"), ("anthropic-version", "2023-06-01")])
            assert answer.status == 200
            assert answer.header("request-id") == "my-id"
            assert answer.json == {
                "id": "msg_my-id",
                "type": "message",
                "role": "assistant",
                "model": "tiny",
                "content": [{"type": "text", "text": "Hello", "citations": None}],
                "stop_reason": "end_turn",
                "stop_sequence": None,
                "usage": {
                    "input_tokens": PROMPT_TOKENS,
                    "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": 0,
                    "output_tokens": 2,
                    "output_tokens_details": {"thinking_tokens": 0},
                },
            }

    run(scenario())


def test_a_stream_begins_before_the_first_token_and_keeps_the_order() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        settings = ApiSettings(heartbeat_seconds=0.01)
        async with application(lane, settings=settings) as (client, _):
            exchange = client.start_post(PATH, body(stream=True))
            await until(lambda: len(exchange.answer.pieces) >= 3)  # no token yet, and already two pings
            lane.generations[0].say("Hé")
            await settle()
            lane.generations[0].say("l\nlo")
            lane.generations[0].finish("length", cached_tokens=3)
            answer = await exchange.done()
            assert answer.header("content-type") == "text/event-stream; charset=utf-8"
            events = [event for event in named_events(answer.body) if event[0] != "ping"]
            names = [name for name, _ in events]
            assert names[:2] == ["message_start", "content_block_start"]
            assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
            assert set(names[2:-3]) == {"content_block_delta"}
            start = events[0][1]["message"]
            assert (start["content"], start["stop_reason"]) == ([], None)
            assert start["usage"]["input_tokens"] == PROMPT_TOKENS
            assert "".join(event["delta"]["text"] for _, event in events[2:-3]) == "Hél\nlo"
            assert events[-2][1]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
            assert events[-2][1]["usage"]["input_tokens"] == PROMPT_TOKENS - 3
            assert events[-2][1]["usage"]["cache_read_input_tokens"] == 3
            assert named_events(answer.body)[1][0] == "ping"

    run(scenario())


def test_the_stop_sequence_that_ended_the_text_is_named() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(lambda generation: generation.give(ended_by_stop(1)))
        async with application(lane) as (client, _):
            asked = body(stop_sequences=["x", "END"])
            whole = (await client.post(PATH, asked)).json
            assert (whole["stop_reason"], whole["stop_sequence"]) == ("stop_sequence", "END")
            assert lane.generations[0].request.params.stop_strings == ("x", "END")
            stream = named_events((await client.post(PATH, {**asked, "stream": True})).body)
            assert stream[-2][1]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}

    run(scenario())


def ended_by_stop(index: int) -> StreamDelta:
    return StreamDelta(text="a", token_ids=[1], finished=True, finish_reason="stop", matched_stop=index)


def streamed(events: Sequence[AnswerEvent], **head: Any) -> list[tuple[str, dict[str, Any]]]:
    stream = AnthropicStream(MessageHead("id", "tiny", [], **head))
    return named_events(stream.opening(10) + stream.events(0, events, None).encode() + stream.ending(USAGE))


def whole(events: Sequence[AnswerEvent], **head: Any) -> dict[str, Any]:
    choice = Choice()
    choice.take_events(events, None)
    return anthropic_answer(MessageHead("id", "tiny", [], **head), [choice], USAGE)


def test_blocks_of_every_kind_open_and_close_in_turn() -> None:
    events = [event for event in streamed(ALL_KINDS) if event[0] != "ping"]
    blocks = [(name.removeprefix("content_block_"), data["index"]) for name, data in events if "index" in data]
    assert [block for block in blocks if block[0] != "delta"] == [
        (edge, index) for index in range(4) for edge in ("start", "stop")
    ]
    kinds = [data["content_block"]["type"] for name, data in events if name == "content_block_start"]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    deltas = [data["delta"] for name, data in events if name == "content_block_delta"]
    assert "".join(delta.get("partial_json", "") for delta in deltas) == '{"city":"Oslo"}{}'
    assert "".join(delta.get("thinking", "") for delta in deltas) == "Let me see."
    assert [delta["type"] for delta in deltas].count("signature_delta") == 1
    assert events[-2][1]["delta"]["stop_reason"] == "tool_use"


def test_a_whole_answer_says_what_its_stream_says() -> None:
    message = whole(ALL_KINDS)
    deltas = [data["delta"] for name, data in streamed(ALL_KINDS) if name == "content_block_delta"]
    [signature] = [delta["signature"] for delta in deltas if delta["type"] == "signature_delta"]
    assert message["content"] == [
        {"type": "thinking", "thinking": "Let me see.", "signature": signature},
        {"type": "text", "text": "I look.", "citations": None},
        {"type": "tool_use", "id": "call_a", "name": "weather", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": "call_b", "name": "clock", "input": {}},
    ]
    assert signature
    assert message["stop_reason"] == "tool_use"
    assert message["usage"]["output_tokens_details"] == {"thinking_tokens": 2}
    assert message["usage"]["input_tokens"] == 6


def test_text_after_a_call_comes_after_it_whole_and_streamed() -> None:
    message = whole(TEXT_AROUND_A_CALL)
    assert [(block["type"], block.get("text")) for block in message["content"]] == [
        ("text", "I look."),
        ("tool_use", None),
        ("text", "And now?"),
    ]
    starts = [data for name, data in streamed(TEXT_AROUND_A_CALL) if name == "content_block_start"]
    assert [data["content_block"]["type"] for data in starts] == ["text", "tool_use", "text"]
    assert message["stop_reason"] == "max_tokens"


def test_thinking_that_is_not_to_be_shown_is_not() -> None:
    assert whole(ALL_KINDS, shows_thinking=False)["content"][0]["thinking"] == ""
    hidden = json.dumps(streamed(ALL_KINDS, shows_thinking=False))
    assert "Let me" not in hidden
    assert '"signature_delta"' in hidden


def test_a_call_that_was_cut_off_gives_what_there_is() -> None:
    cut: list[AnswerEvent] = [CallStart(0, "c", "weather"), CallArguments(0, '{"city": "Os'), AnswerEnd("length")]
    message = whole(cut)
    assert message["content"] == [{"type": "tool_use", "id": "c", "name": "weather", "input": {"city": "Os"}}]
    assert message["stop_reason"] == "max_tokens"


def test_a_failure_after_the_first_byte_is_an_error_event() -> None:
    def break_off(generation: ScriptedGeneration) -> None:
        generation.say("Hel")
        generation.fail(WorkerFailedError("The model's worker failed."))

    async def scenario() -> None:
        async with application(ScriptedLane(break_off)) as (client, _):
            events = named_events((await client.post(PATH, body(stream=True), [("x-request-id", "r")])).body)
            assert [name for name, _ in events][-2:] == ["content_block_stop", "error"]
            assert events[-1][1] == {
                "type": "error",
                "error": {
                    "type": "api_error",
                    "message": "The model's worker failed.",
                    "details": {"error_code": "worker_failed", "param": None},
                },
                "request_id": "r",
            }

    run(scenario())


@pytest.mark.parametrize(
    ("fields", "status", "kind", "names"),
    [
        ({"model": "other"}, 404, "not_found_error", "model"),
        ({"max_tokens": 0}, 400, "invalid_request_error", "max_tokens"),
        ({"max_tokens": None}, 400, "invalid_request_error", "max_tokens"),
        ({"temperature": 3}, 400, "invalid_request_error", "temperature"),
        ({"nonsense": 1}, 400, "invalid_request_error", "nonsense"),
        ({"messages": []}, 400, "invalid_request_error", "messages"),
        ({"thread": {"type": "create"}}, 400, "invalid_request_error", "thread"),
        ({"messages": [{"role": "user", "content": "too long"}]}, 400, "invalid_request_error", "too long"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400, "invalid_request_error", "content[0]"),
    ],
)
def test_refusals_have_the_envelope_of_the_protocol(fields: dict[str, Any], status: int, kind: str, names: str) -> None:
    async def scenario() -> None:
        async with application(ScriptedLane()) as (client, _):
            got_status, got_kind, message = error_of(await client.post(PATH, body(**fields)))
            assert (got_status, got_kind) == (status, kind)
            assert names in message

    run(scenario())


def test_details_say_code_and_field() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane()) as (client, _):
            wrong = (await client.post(PATH, body(temperature=3))).json["error"]["details"]
            assert wrong == {"error_code": "invalid_value", "param": "temperature"}
            threaded = (await client.post(PATH, body(thread={"type": "create"}))).json["error"]["details"]
            assert threaded == {"error_code": "thread_unsupported_request", "param": "thread", "unsupported": []}

    run(scenario())


def test_refusals_of_the_gate_have_it_too() -> None:
    async def scenario() -> None:
        settings = ApiSettings(api_keys=(ApiKey.of("me", "secret"),))
        async with application(ScriptedLane(say_words("a")), settings=settings) as (client, _):
            key = [("x-api-key", "secret")]
            assert error_of(await client.post(PATH, body()))[:2] == (401, "authentication_error")
            assert error_of(await client.request("DELETE", PATH, headers=key))[:2] == (405, "invalid_request_error")
            assert error_of(await client.get("/v1/messages/batches", headers=key))[:2] == (404, "not_found_error")
            assert error_of(await client.post(PATH, b"{", key))[:2] == (400, "invalid_request_error")
            assert (await client.post(PATH, body(), key)).status == 200
            version = [*key, ("anthropic-version", "2020-01-01")]
            status, _, message = error_of(await client.post(PATH, body(), version))
            assert (status, "2023-06-01" in message) == (400, True)
            beta = [*key, ("anthropic-beta", "some-beta-2026-01-01")]
            assert (await client.post(PATH, body(), beta)).status == 200

    run(scenario())


def test_a_refused_schema_is_named_as_it_was_asked() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with application(lane) as (client, _):
            lane.refusal = InvalidSchemaError(
                "guided_decoding.json_schema.not is not supported", param="guided_decoding.json_schema.not"
            )
            output = {"format": {"type": "json_schema", "schema": {"not": {}}}}
            status, _, message = error_of(await client.post(PATH, body(output_config=output)))
            assert (status, message) == (400, "output_config.format.schema.not is not supported")
            guide = lane.encoded[-1].params.guide
            assert guide is not None
            assert (guide.type, json.loads(guide.guide)) == ("json_schema", {"not": {}})

    run(scenario())


def test_fields_reach_the_model() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("a"))
        async with application(lane) as (client, _):
            asked = body(
                temperature=0.5,
                top_p=0.9,
                top_k=3,
                thinking={"type": "enabled", "budget_tokens": 2048},
                output_config={"effort": "max"},
                metadata={"user_id": "u"},
                cache_control={"type": "ephemeral"},
            )
            assert (await client.post(PATH, asked)).status == 200
            params = lane.generations[0].request.params
            assert (params.temperature, params.top_p, params.top_k, params.max_tokens) == (0.5, 0.9, 3, 20)
            assert (params.enable_thinking, params.reasoning_effort) == (True, "xhigh")
            assert (await client.post(PATH, body(thinking={"type": "disabled"}))).status == 200
            assert lane.generations[1].request.params.enable_thinking is False

    run(scenario())


def test_tokens_are_counted_while_every_slot_is_taken() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(max_batch_size=1)
        async with application(lane, max_queued_requests=0) as (client, engine):
            exchange = client.start_post(PATH, body())
            await until(lambda: engine.model("tiny").admission.running == 1)
            counted = await count(client)
            assert (counted.status, counted.json) == (200, {"input_tokens": PROMPT_TOKENS})
            assert error_of(await client.post(PATH, body()))[:2] == (429, "rate_limit_error")
            exchange.leave()
            await exchange.done()
            image = [{"role": "user", "content": [{"type": "text", "text": "?"}, {"type": "image"}]}]
            status, _, message = error_of(await count(client, messages=image))
            assert (status, "messages[0].content[1]" in message) == (400, True)
            assert error_of(await count(client, max_tokens=5))[0] == 400

    run(scenario())


async def count(client: AsgiClient, **fields: Any) -> Answer:
    asked = body(**fields)
    if "max_tokens" not in fields:
        del asked["max_tokens"]
    return await client.post("/v1/messages/count_tokens", asked)
