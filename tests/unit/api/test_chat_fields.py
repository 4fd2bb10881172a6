"""Fields of chat completions, class by class: implemented, neutral, advisory, refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.api.asgi_client import USER_MESSAGE, application, run
from tests.unit.serving.scripted_lane import PROMPT_TOKENS, ScriptedLane, say_words

from edgellm.api.settings import ApiSettings

NEUTRAL = [
    {"n": 1}, {"tools": []}, {"tool_choice": "none"}, {"tool_choice": "auto"}, {"frequency_penalty": 0},
    {"presence_penalty": 0.0}, {"store": False}, {"parallel_tool_calls": True}, {"response_format": {"type": "text"}},
    {"service_tier": "auto"}, {"service_tier": "default"}, {"logprobs": False}, {"stop": []}, {"logit_bias": {}},
    {"min_p": 0}, {"repetition_penalty": 1}, {"best_of": 1}, {"echo": False}, {"user": "me"},
    {"safety_identifier": "x"}, {"prompt_cache_key": "x"}, {"metadata": {"a": "b"}}, {"functions": None},
    {"guided_decoding": {"json_object": False, "regex": "", "choice": [], "json_schema": None}},
    {"modalities": ["text"]},
    {"audio": None}, {"prediction": None}, {"priority": 0}, {"stream_options": None},
]  # fmt: skip


@pytest.mark.parametrize("fields", NEUTRAL, ids=str)
def test_a_field_that_asks_for_nothing_is_taken(fields: dict[str, Any]) -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("a"), parameters=frozenset(), guided_decoding=())
        async with application(lane) as (client, _):
            assert (await client.chat(**fields)).status == 200

    run(scenario())


UNSUPPORTED = "unsupported_parameter"
INVALID = "invalid_value"
TOOLS = [{"type": "function", "function": {"name": "f"}}]
FUNCTION_PARAMETERS = "tools[0].function.parameters"
REFUSED = [
    ({"tool_choice": "required"}, INVALID, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": "required"}, UNSUPPORTED, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": "sometimes"}, INVALID, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"type": "function"}}, INVALID, "tool_choice.function"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "g"}}}, INVALID, "tool_choice"),
    ({"tools": [*TOOLS, *TOOLS]}, INVALID, "tools[1].function.name"),
    ({"tools": TOOLS * 129}, INVALID, "tools"),
    ({"tools": [{"type": "custom", "function": {"name": "f"}}]}, UNSUPPORTED, "tools[0].type"),
    ({"tools": [{"type": "function", "function": {"name": "no spaces"}}]}, INVALID, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]}, INVALID, FUNCTION_PARAMETERS),
    ({"tools": TOOLS, "parallel_tool_calls": 1}, INVALID, "parallel_tool_calls"),
    ({"functions": [{"name": "f"}]}, UNSUPPORTED, "functions"),
    ({"store": True}, UNSUPPORTED, "store"),
    ({"store": 0}, UNSUPPORTED, "store"),
    ({"service_tier": "flex"}, UNSUPPORTED, "service_tier"),
    ({"functions": []}, UNSUPPORTED, "functions"),
    ({"function_call": "auto"}, UNSUPPORTED, "function_call"),
    ({"modalities": ["text", "audio"]}, INVALID, "audio"),
    ({"modalities": ["audio"], "audio": {"format": "wav"}}, INVALID, "modalities"),
    ({"modalities": ["text", "image"]}, INVALID, "modalities[1]"),
    ({"audio": {"voice": "x"}}, INVALID, "modalities"),
    ({"modalities": ["text", "audio"], "audio": {"voice": "x"}}, "unsupported_modality", "modalities"),
    ({"modalities": ["text", "audio"], "audio": {"format": "ogg"}}, INVALID, "audio.format"),
    ({"modalities": ["text", "audio"], "audio": {"voice": 1}}, INVALID, "audio.voice"),
    ({"modalities": ["text", "audio"], "audio": {"pitch": 1}}, "unknown_parameter", "audio.pitch"),
    ({"modalities": ["text", "audio"], "audio": {}, "tools": TOOLS}, UNSUPPORTED, "tools"),
    ({"modalities": ["text", "audio"], "audio": {}, "logprobs": True}, UNSUPPORTED, "logprobs"),
    ({"prediction": {"type": "content"}}, UNSUPPORTED, "prediction"),
    ({"best_of": 2}, UNSUPPORTED, "best_of"),
    ({"echo": True}, UNSUPPORTED, "echo"),
    ({"min_p": 0.1}, UNSUPPORTED, "min_p"),
    ({"frequency_penalty": 0.1}, UNSUPPORTED, "frequency_penalty"),
    ({"presence_penalty": -0.1}, UNSUPPORTED, "presence_penalty"),
    ({"repetition_penalty": 1.1}, UNSUPPORTED, "repetition_penalty"),
    ({"response_format": {"type": "json_object"}}, UNSUPPORTED, "response_format"),
    ({"guided_decoding": {"regex": "a+"}}, UNSUPPORTED, "guided_decoding"),
    ({"who_knows": 1}, "unknown_parameter", "who_knows"),
    ({"stream_options": {"include_usage": True, "x": 1}, "stream": True}, "unknown_parameter", "stream_options.x"),
    ({"temperature": 2.1}, INVALID, "temperature"),
    ({"temperature": -0.1}, INVALID, "temperature"),
    ({"temperature": "1"}, INVALID, "temperature"),
    ({"temperature": True}, INVALID, "temperature"),
    ({"top_p": 0}, INVALID, "top_p"),
    ({"top_p": 1.1}, INVALID, "top_p"),
    ({"top_k": -2}, INVALID, "top_k"),
    ({"top_k": 2**31}, INVALID, "top_k"),
    ({"min_p": 1.1}, INVALID, "min_p"),
    ({"frequency_penalty": 2.1}, INVALID, "frequency_penalty"),
    ({"repetition_penalty": 0}, INVALID, "repetition_penalty"),
    ({"repetition_penalty": 2.1}, INVALID, "repetition_penalty"),
    ({"seed": -1}, INVALID, "seed"),
    ({"seed": 2**64}, INVALID, "seed"),
    ({"seed": 1.5}, INVALID, "seed"),
    ({"n": 0}, INVALID, "n"),
    ({"n": 9}, INVALID, "n"),
    ({"max_tokens": 0}, INVALID, "max_tokens"),
    ({"user": 3}, INVALID, "user"),
    ({"user": "x" * 1025}, INVALID, "user"),
    ({"metadata": {"a": 1}}, INVALID, "metadata.a"),
    ({"metadata": {"k" * 65: "x"}}, INVALID, "metadata"),
    ({"metadata": {"a": "x" * 513}}, INVALID, "metadata.a"),
    ({"metadata": {str(i): "x" for i in range(17)}}, INVALID, "metadata"),
    ({"prompt_cache_key": []}, INVALID, "prompt_cache_key"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, INVALID, "max_completion_tokens"),
    ({"top_logprobs": 2}, INVALID, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, INVALID, "top_logprobs"),
    ({"logit_bias": {"x": 1}}, INVALID, "logit_bias"),
    ({"logit_bias": {"5": 101}}, INVALID, "logit_bias"),
    ({"logit_bias": {"1000": 1}}, INVALID, "logit_bias"),
    ({"logit_bias": {str(i): 1 for i in range(1025)}}, INVALID, "logit_bias"),
    ({"stop": ["x"] * 17}, INVALID, "stop"),
    ({"stop": "é" * 129}, INVALID, "stop[0]"),
    ({"stop": ["ok", ""]}, INVALID, "stop[1]"),
    ({"stream": "yes"}, INVALID, "stream"),
    ({"stream_options": {"include_usage": True}}, INVALID, "stream_options"),
    ({"reasoning_effort": "enormous"}, INVALID, "reasoning_effort"),
    ({"chat_template_kwargs": {"chat_template": "x"}}, "unknown_parameter", "chat_template_kwargs.chat_template"),
    (
        {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}},
        INVALID,
        "chat_template_kwargs.enable_thinking",
    ),
    ({"model": "other"}, "model_not_found", "model"),
    ({"model": 3}, INVALID, "model"),
    ({"messages": []}, INVALID, "messages"),
    ({"messages": "hi"}, INVALID, "messages"),
    ({"messages": [USER_MESSAGE] * 513}, INVALID, "messages"),
    ({"messages": [USER_MESSAGE, {"role": "function", "content": "x"}]}, INVALID, "messages[1].role"),
    ({"messages": [USER_MESSAGE, {"role": "boss", "content": "x"}]}, INVALID, "messages[1].role"),
    ({"messages": [{"content": "x"}]}, INVALID, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, INVALID, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "poem"}]}]}, INVALID, "messages[0].content[0].type"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
        INVALID,
        "messages[0].content[0].text",
    ),
    ({"messages": [{"role": "user", "content": ["x"] * 65}]}, INVALID, "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": ["x", {"type": "image_url", "image_url": {"url": "x"}}]}]},
        "unsupported_modality",
        "messages[0].content[1]",
    ),
    ({"messages": [{"role": "user", "content": "x", "surprise": 1}]}, "unknown_parameter", "messages[0].surprise"),
    ({"messages": [{"role": "user", "content": "too long"}]}, "context_length_exceeded", "messages"),
]


@pytest.mark.parametrize(("fields", "code", "param"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_cannot_be_served_is_refused_by_name(fields: dict[str, Any], code: str, param: str) -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("a"), parameters=frozenset(), guided_decoding=())
        async with application(lane) as (client, _):
            answer = await client.chat(**fields)
            assert answer.status == (404 if code == "model_not_found" else 400)
            assert (answer.error["code"], answer.error["param"]) == (code, param)
            assert not lane.generations

    run(scenario())


def test_unknown_fields_pass_where_the_operator_says_so_and_are_counted() -> None:
    async def scenario() -> None:
        for action, status in (("refuse", 400), ("ignore", 200)):
            settings = ApiSettings(unknown_fields=action)  # type: ignore[arg-type]
            async with application(ScriptedLane(say_words("a")), settings=settings) as (client, _):
                assert (await client.chat(who_knows=1)).status == status
                await client.chat(store=True)
                metrics = (await client.get("/metrics")).body.decode()
                assert f'edgellm_unknown_fields_total{{action="{action}"}} 1.0' in metrics
                assert 'edgellm_unsupported_fields_total{field="store"} 1.0' in metrics

    run(scenario())


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("large", [100_000, 2**31, 2**63, 10**30])
def test_a_length_of_any_size_means_as_much_as_there_is(name: str, large: int) -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("hi"))
        async with application(lane) as (client, _):
            assert (await client.chat(**{name: large})).status == 200
            left_tokens = lane.capabilities.max_kv_cache_capacity - PROMPT_TOKENS
            assert lane.generations[-1].request.params.max_tokens == left_tokens

    run(scenario())
