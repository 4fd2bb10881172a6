"""POST /v1/chat/completions: answers, whole and streamed, field by field."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.unit.api.asgi_client import USER_MESSAGE, application, run
from tests.unit.serving.scripted_lane import (
    PROMPT_TOKENS,
    ScriptedGeneration,
    ScriptedLane,
    say_words,
    settle,
    spec_of,
    until,
)

from edgellm.errors import GenerationError, GuideLimitError, InvalidSchemaError, WorkerFailedError
from edgellm.parsing.chat_template import CLIENT_FIELDS
from edgellm.parsing.output_style import OutputStyle
from edgellm.runtime.outputs import LogprobEntry, StreamDelta


def test_a_whole_answer_has_the_shape_of_openai() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("Hel", "lo"))) as (client, _):
            answer = await client.chat(headers=[("x-request-id", "my-id")])
            assert answer.status == 200
            assert answer.header("content-type") == "application/json"
            assert answer.header("x-request-id") == "my-id"
            body = answer.json
            assert (body["id"], body["object"], body["model"]) == ("chatcmpl-my-id", "chat.completion", "tiny")
            [choice] = body["choices"]
            assert choice["message"]["role"] == "assistant"
            assert choice["message"]["content"] == "Hello"
            assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "stop", None)
            assert body["usage"] == {
                "prompt_tokens": PROMPT_TOKENS,
                "completion_tokens": 2,
                "total_tokens": PROMPT_TOKENS + 2,
                "prompt_tokens_details": {"cached_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 0},
            }

    run(scenario())


def test_a_stream_says_the_same_in_pieces() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with application(lane) as (client, _):
            exchange = client.start_chat(stream=True, stream_options={"include_usage": True})
            await until(lambda: exchange.answer.status == 200)
            assert exchange.answer.pieces == []  # nothing before there is content
            for word in ("Hé", "l\n", "lo\u2028"):
                lane.generations[0].say(word)
                await settle()
            lane.generations[0].finish("length", cached_tokens=3)
            answer = await exchange.done()
            assert answer.header("content-type") == "text/event-stream; charset=utf-8"
            assert answer.header("cache-control") == "no-cache"
            assert answer.header("x-accel-buffering") == "no"
            assert answer.header("x-edgellm-streaming") == "incremental"
            *chunks, usage, done = answer.events
            assert done == "[DONE]"
            assert {(c["id"], c["object"], c["created"], c["model"]) for c in [*chunks, usage]} == {
                (usage["id"], "chat.completion.chunk", usage["created"], "tiny")
            }
            deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
            assert deltas[0] == {"role": "assistant", "content": "Hé"}
            assert all("role" not in delta for delta in deltas[1:])
            assert "".join(delta.get("content", "") for delta in deltas) == "Hél\nlo\u2028"
            assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "length"]
            assert all(chunk["usage"] is None for chunk in chunks)
            assert usage["choices"] == []
            assert usage["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}

    run(scenario())


def test_a_stream_without_usage_has_no_usage() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("a"))) as (client, _):
            answer = await client.chat(stream=True)
            assert answer.events[-1] == "[DONE]"
            assert all("usage" not in chunk for chunk in answer.events[:-1])
            assert all(chunk["choices"] for chunk in answer.events[:-1])

    run(scenario())


def test_an_empty_answer_still_names_its_role() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words())) as (client, _):
            first, last, _ = (await client.chat(stream=True)).events
            assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
            assert last["choices"][0]["delta"] == {}
            assert last["choices"][0]["finish_reason"] == "stop"
            assert (await client.chat()).json["choices"][0]["message"]["content"] == ""

    run(scenario())


def test_several_choices_are_told_apart() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("a", "b"))) as (client, _):
            whole = (await client.chat(n=3)).json
            assert [(c["index"], c["message"]["content"]) for c in whole["choices"]] == [
                (0, "ab"),
                (1, "ab"),
                (2, "ab"),
            ]
            assert whole["usage"]["prompt_tokens"] == PROMPT_TOKENS
            assert whole["usage"]["completion_tokens"] == 6
            texts = ["", "", ""]
            for chunk in (await client.chat(n=3, stream=True)).events[:-1]:
                for choice in chunk["choices"]:
                    texts[choice["index"]] += choice["delta"].get("content", "")
            assert texts == ["ab", "ab", "ab"]

    run(scenario())


def entry(text: bytes, logprob: float) -> LogprobEntry:
    return LogprobEntry(1, logprob, text.decode("utf-8", "replace"), text)


def say_with_logprobs(generation: ScriptedGeneration) -> None:
    for chosen in (b"\xc3", b"\xa9"):
        entries = [entry(chosen, -0.5), entry(chosen, -0.5), entry(b"x", -1.5)]
        generation.give(StreamDelta(text="" if chosen == b"\xc3" else "é", token_ids=[1], logprobs=[entries[: 1 + 2]]))
    generation.finish()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("top", [0, 2])
def test_logprobs_carry_exact_bytes(stream: bool, top: int) -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_with_logprobs)
        async with application(lane) as (client, _):
            answer = await client.chat(logprobs=True, top_logprobs=top, stream=stream)
            assert lane.generations[0].request.params.num_logprobs == max(1, top)
            if stream:
                content = [
                    token
                    for chunk in answer.events[:-1]
                    for choice in chunk["choices"]
                    if choice["logprobs"]
                    for token in choice["logprobs"]["content"]
                ]
            else:
                content = answer.json["choices"][0]["logprobs"]["content"]
            assert [token["bytes"] for token in content] == [[0xC3], [0xA9]]
            assert [token["token"] for token in content] == ["\ufffd", "\ufffd"]
            assert [len(token["top_logprobs"]) for token in content] == [top, top]

    run(scenario())


def test_sampling_fields_reach_the_runtime() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("a"))
        async with application(lane) as (client, _):
            await client.chat(
                temperature=0.5, top_p=0.8, top_k=40, min_p=0.1, seed=2**64 - 1, max_completion_tokens=5, stop="END",
                frequency_penalty=0.5, presence_penalty=-0.5, repetition_penalty=1.1, logit_bias={"5": -100},
                reuse_context=False, cache_generated_tokens=False, skip_special_tokens=False, reasoning_effort="low",
                chat_template_kwargs={"enable_thinking": True},
            )  # fmt: skip
            params = lane.generations[0].request.params
            assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.5, 0.8, 40, 0.1)
            assert (params.seed, params.max_tokens, params.stop_strings) == (2**64 - 1, 5, ("END",))
            assert (params.frequency_penalty, params.presence_penalty) == (0.5, -0.5)
            assert (params.repetition_penalty, params.bias_by_token_id) == (1.1, {5: -100.0})
            assert (params.reuse_context, params.cache_generated_tokens) == (False, False)
            assert (params.skip_special_tokens, params.reasoning_effort) == (False, "low")
            assert params.enable_thinking

    run(scenario())


def test_fields_left_out_get_the_defaults_of_openai() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("a"))
        async with application(lane) as (client, _):
            await client.chat(temperature=None, max_tokens=None, stop=None, n=None, tools=None, logit_bias=None)
            params = lane.generations[0].request.params
            assert (params.temperature, params.top_p, params.top_k) == (1.0, 1.0, 0)
            assert params.max_tokens == 200 - PROMPT_TOKENS  # 2,048, clamped to what the prompt leaves

    run(scenario())


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
NOTHING_ELSE = {"refusal": None, "annotations": [], "audio": None, "function_call": None, "tool_calls": None}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "content": "x", **NOTHING_ELSE},
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"role": "assistant", "content": "x", "reasoning_content": "because", "reasoning": "other"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
    ],
    ids=lambda message: ",".join(message),
)
def test_a_message_that_we_produced_can_be_sent_back(message: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(say_words("a"))) as (client, _):
            assert (await client.chat(messages=[USER_MESSAGE, message, USER_MESSAGE])).status == 200

    run(scenario())


def test_absent_null_and_given_content_stay_apart() -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}]

    async def scenario() -> None:
        lane = ScriptedLane(say_words("a"))
        async with application(lane) as (client, _):
            await client.chat(
                messages=[
                    {"role": "assistant", "tool_calls": calls},
                    {"role": "assistant", "content": None, "tool_calls": calls},
                    {"role": "user", "content": ["a", {"text": "b"}, {"type": "input_text", "text": "c"}]},
                ]
            )
            absent, null, parts = lane.generations[0].request.prompt.messages  # type: ignore[union-attr]
            assert "content" not in absent
            assert null["content"] is None
            assert parts["content"] == [{"type": "text", "text": text} for text in "abc"]

    run(scenario())


def test_guided_decoding_reaches_a_runtime_that_enforces_it() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("a"))
        schema = {"type": "object"}
        async with application(lane) as (client, _):
            for fields in (
                {
                    "response_format": {
                        "type": "json_schema",
                        "json_schema": {"name": "x", "schema": schema, "strict": False},
                    }
                },
                {"guided_decoding": {"json_schema": schema}},
                {"response_format": {"type": "json_object"}},
            ):
                assert (await client.chat(**fields)).status == 200
            guides = [generation.request.params.guide for generation in lane.generations]
            assert [(guide.type, guide.guide) for guide in guides if guide] == [
                ("json_schema", '{"type":"object"}'), ("json_schema", '{"type":"object"}'), ("json_object", ""),
            ]  # fmt: skip
            both = await client.chat(response_format={"type": "json_object"}, guided_decoding={"json_object": True})
            assert (both.status, both.error["param"]) == (400, "guided_decoding")
            two = await client.chat(guided_decoding={"json_object": True, "json_schema": schema})
            assert two.status == 400
            lacking = await client.chat(guided_decoding={"regex": "a"})
            assert (lacking.error["code"], lacking.error["param"]) == ("unsupported_parameter", "guided_decoding")
            lane.refusal = InvalidSchemaError(
                "guided_decoding.json_schema.x points to nothing", param="guided_decoding.json_schema.x"
            )
            bad = await client.chat(
                response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
            )
            assert (bad.status, bad.error["code"]) == (400, "invalid_schema")
            assert bad.error["param"] == "response_format.json_schema.schema.x"
            assert bad.error["message"] == "response_format.json_schema.schema.x points to nothing"
            metrics = (await client.get("/metrics")).body.decode()
            assert 'edgellm_unsupported_fields_total{field="guided_decoding"} 1.0' in metrics
            missing = await client.chat(response_format={"type": "json_schema", "json_schema": {"name": "x"}})
            assert missing.error["param"] == "response_format.json_schema.schema"

    run(scenario())


def test_an_error_after_the_first_byte_ends_the_stream_without_done() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with application(lane) as (client, engine):
            exchange = client.start_chat(stream=True)
            await until(lambda: bool(lane.generations))
            lane.generations[0].say("half")
            await settle()
            lane.generations[0].fail(WorkerFailedError("The model's worker failed."))
            *_, last = (await exchange.done()).events
            assert last["error"]["code"] == "worker_failed"
            assert set(last["error"]) == {"message", "type", "param", "code"}
            assert exchange.answer.complete
            assert engine.running_requests == 0

    run(scenario())


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_leaves_one_log_line_with_its_cause_and_request_id(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        failing = ScriptedLane(lambda g: g.fail(GenerationError("gone", reason="Error: the cause")))
        async with application(failing) as (client, _):
            answer = await client.chat(stream=stream, headers=[("x-request-id", "find-me")])
            error = answer.events[-1]["error"] if stream else answer.error
            assert error["code"] == "internal_error"
            assert "the cause" not in answer.body.decode()

    run(scenario())
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert lines == ["request find-me failed: internal_error: Error: the cause"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_guide_that_meets_a_limit_is_the_requests_own_error(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        message, param = "guided_decoding.json_schema met a limit", "guided_decoding.json_schema"
        failing = ScriptedLane(lambda g: g.fail(GuideLimitError(message, param=param)))
        schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
        async with application(failing) as (client, _):
            answer = await client.chat(stream=stream, response_format=schema)
            error = answer.events[-1]["error"] if stream else answer.error
            assert error["code"] == "guide_limit_exceeded"
            assert error["param"] == "response_format.json_schema.schema"
            assert error["message"] == "response_format.json_schema.schema met a limit"

    run(scenario())
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_whole_answer_that_fails_is_an_error_status() -> None:
    async def scenario() -> None:
        async with application(ScriptedLane(lambda g: g.fail(WorkerFailedError("gone")))) as (client, _):
            answer = await client.chat()
            assert (answer.status, answer.error["code"]) == (502, "worker_failed")

    run(scenario())


def test_chat_needs_a_model_name_only_when_there_are_several() -> None:
    async def scenario() -> None:
        one, two = ScriptedLane(say_words("1")), ScriptedLane(say_words("2"))
        async with application(specs=[spec_of(one, name="one"), spec_of(two, name="two")]) as (client, _):
            unnamed = await client.chat()
            assert (unnamed.status, unnamed.error["param"]) == (400, "model")
            assert (await client.chat(model="two")).json["choices"][0]["message"]["content"] == "2"

    run(scenario())


@pytest.mark.parametrize(
    ("reads", "parser", "fields", "param"),
    [
        ((), "none", {"enable_thinking": True}, "enable_thinking"),
        ((), "none", {"chat_template_kwargs": {"enable_thinking": True}}, "chat_template_kwargs.enable_thinking"),
        ((), "none", {"reasoning_effort": "low"}, "reasoning_effort"),
        ((), "none", {"chat_template_kwargs": {"reasoning_effort": "high"}}, "chat_template_kwargs.reasoning_effort"),
        ((), "none", {"enable_thinking": False, "reasoning_effort": "none"}, None),
        ((), "none", {"enable_thinking": None, "reasoning_effort": "minimal"}, None),
        (("enable_thinking",), "none", {"enable_thinking": True, "reasoning_effort": "low"}, None),
        (("reasoning_effort",), "none", {"enable_thinking": True}, "enable_thinking"),
        ((), "deepseek_r1", {"enable_thinking": True, "reasoning_effort": "high"}, None),
        ((), "deepseek_r1", {"enable_thinking": False}, "enable_thinking"),
    ],
)
def test_what_a_models_template_does_not_read_is_refused_unless_it_asks_for_nothing(
    reads: tuple[str, ...], parser: str, fields: dict[str, Any], param: str | None
) -> None:
    async def scenario() -> None:
        lane = ScriptedLane(
            say_words("a"), template_fields=frozenset(reads), output_style=OutputStyle(reasoning_parser=parser)
        )
        async with application(lane) as (client, _):
            answer = await client.chat(**fields)
            if param is None:
                assert answer.status == 200
            else:
                assert (answer.status, answer.error["code"]) == (400, "unsupported_parameter")
                assert answer.error["param"] == param
            [model] = (await client.get("/v1/models")).json["data"]
            refused = set(model["edgellm"]["unsupported_parameters"]) & CLIENT_FIELDS
            assert refused == (CLIENT_FIELDS - set(reads) if parser == "none" else set())

    run(scenario())
