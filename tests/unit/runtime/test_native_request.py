"""Native requests: every field set, what a module lacks refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.runtime.scripted_runtime import (
    ContextCacheCommitPolicy,
    ContextCacheLookupPolicy,
    GuideType,
    ScriptedModule,
    ToolChoiceMode,
)

from edgellm.errors import InvalidSchemaError, UnsupportedParameterError
from edgellm.parsing.messages import template_message
from edgellm.runtime.generation import ChatPrompt, GenerationRequest, TextPrompt, TokenPrompt
from edgellm.runtime.native_request import NativeRequestBuilder
from edgellm.runtime.sampling_params import SamplingParams

USER = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "description": "d"}}


def build(request: GenerationRequest, *, extensions: bool = False, **options: bool) -> Any:
    options = {"context_cache": False, "has_draft_model": False} | options
    builder = NativeRequestBuilder(ScriptedModule(extensions=extensions), **options)  # type: ignore[arg-type]
    return builder.build(request)[0]


def test_every_sampling_field_is_set_since_native_defaults_are_zero() -> None:
    params = SamplingParams(
        temperature=0.5,
        top_p=0.8,
        top_k=7,
        seed=2**64 - 1,
        max_tokens=9,
        num_logprobs=3,
        stop=["a", "b"],
        logit_bias={"4": -1},
        enable_thinking=True,
        reasoning_effort="low",
        disable_spec_decode=True,
        skip_special_tokens=False,
    )
    native = build(GenerationRequest(ChatPrompt(USER), params))
    assert (native.temperature, native.top_p, native.top_k) == (0.5, 0.8, 7)
    assert (native.max_generate_length, native.num_logprobs) == (9, 3)
    assert (native.enable_thinking, native.reasoning_effort) == (True, "low")
    assert (native.disable_spec_decode, native.skip_special_tokens) == (True, False)
    (item,) = native.requests
    assert (item.stop_strings, item.logit_bias, item.sampling_seed) == (["a", "b"], {4: -1.0}, 2**64 - 1)
    (channel,) = native.stream_channels
    assert channel.skip_special_tokens is False


def test_temperature_zero_is_greedy_on_every_runtime() -> None:
    native = build(GenerationRequest(ChatPrompt(USER), SamplingParams(temperature=0)))
    assert (native.temperature, native.top_k, native.top_p) == (0.0, 1, 1.0)


def test_cache_policies() -> None:
    on = build(GenerationRequest(ChatPrompt(USER), SamplingParams()))
    off = build(GenerationRequest(ChatPrompt(USER), SamplingParams(reuse_context=False, cache_generated_tokens=False)))
    assert on.context_cache_lookup_policy is ContextCacheLookupPolicy.USE_CACHE
    assert on.context_cache_commit_policy is ContextCacheCommitPolicy.INCLUDING_GENERATED_TOKENS
    assert off.context_cache_lookup_policy is ContextCacheLookupPolicy.BYPASS
    assert off.context_cache_commit_policy is ContextCacheCommitPolicy.PREFILL_STATE_ONLY


@pytest.mark.parametrize("missing", ["", "cache", "policy", "draft", "template", "generation prompt", "chat"])
def test_the_replay_tail_is_derived_only_when_everything_asks_for_it(missing: str) -> None:
    params = SamplingParams(cache_generated_tokens=missing == "policy")
    prompt: Any = ChatPrompt(
        USER,
        apply_chat_template=missing != "template",
        add_generation_prompt=missing != "generation prompt",
    )
    native = build(
        GenerationRequest(TextPrompt("hi") if missing == "chat" else prompt, params),
        context_cache=missing != "cache",
        has_draft_model=missing != "draft",
    )
    assert native.context_cache_replay_tail_length == (0 if missing else -1)


def test_messages_and_tools_travel_in_the_contracts_objects() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": {"a": 1}}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "x"}], "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": None},
        {"role": "tool", "tool_call_id": "c", "content": "42"},
    ]
    prompt = ChatPrompt(messages, tools=[TOOL], tool_choice="auto", parallel_tool_calls=False)
    native = build(GenerationRequest(prompt, SamplingParams()))
    assert [template_message(message) for message in native.requests[0].messages] == [
        {"role": "user", "content": [{"type": "text", "text": "x"}], "name": "ann"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}],
        },
        {"role": "tool", "content": "42", "tool_call_id": "c"},
    ]
    (tool,) = native.tools
    assert (tool.name, tool.description, tool.has_description, tool.has_parameters) == ("f", "d", True, False)
    assert (native.tool_choice.mode, native.parallel_tool_calls) == (ToolChoiceMode.AUTO, False)


def test_choice_none_renders_no_tools() -> None:
    native = build(GenerationRequest(ChatPrompt(USER, tools=[TOOL], tool_choice="none"), SamplingParams()))
    assert (native.tools, native.tool_choice.mode) == ([], ToolChoiceMode.NONE)


def test_raw_text_has_no_template() -> None:
    native = build(GenerationRequest(TextPrompt("once"), SamplingParams()))
    assert (native.apply_chat_template, native.add_generation_prompt) == (False, False)
    assert native.requests[0].messages[0].contents[0].content == "once"


def test_ids_and_extensions_travel_where_the_module_has_them() -> None:
    params = SamplingParams(min_p=0.1, frequency_penalty=1, presence_penalty=-1, repetition_penalty=1.5)
    request = GenerationRequest(ChatPrompt(USER), params, prompt_token_ids=[1, 2], cache_domain="ann")
    native = build(request, extensions=True)
    extensions = native.requests[0].extensions
    assert (extensions.token_ids, extensions.cache_domain) == ([1, 2], "ann")
    assert (extensions.min_p, extensions.frequency_penalty) == (0.1, 1.0)
    assert (extensions.presence_penalty, extensions.repetition_penalty) == (-1.0, 1.5)
    assert native.requests[0].messages == []


@pytest.mark.parametrize(
    "asked",
    [
        {"min_p": 0.1},
        {"frequency_penalty": 1},
        {"presence_penalty": 1},
        {"repetition_penalty": 1.1},
        {"ignore_eos": True},
    ],
)
def test_what_the_module_lacks_is_refused_by_name(asked: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedParameterError) as refusal:
        build(GenerationRequest(ChatPrompt(USER), SamplingParams(**asked)))
    assert [refusal.value.param] == list(asked)
    build(GenerationRequest(ChatPrompt(USER), SamplingParams(**asked)), extensions=True)


def test_vectors_need_the_extension() -> None:
    request = GenerationRequest(TextPrompt("x"), SamplingParams(), embedding=True)
    with pytest.raises(UnsupportedParameterError, match="makes no embeddings"):
        build(request)
    assert build(request, extensions=True).requests[0].extensions.embeddings is True
    plain = build(GenerationRequest(TextPrompt("x"), SamplingParams()), extensions=True)
    assert plain.requests[0].extensions.embeddings is False


def test_prompts_of_ids_need_the_extension() -> None:
    with pytest.raises(UnsupportedParameterError):
        build(GenerationRequest(TokenPrompt([1]), SamplingParams()))
    with pytest.raises(UnsupportedParameterError):
        build(GenerationRequest(TextPrompt("x"), SamplingParams(), prompt_token_ids=[1]))


def test_a_guide_becomes_the_contracts_and_is_validated_where_the_module_can() -> None:
    request = GenerationRequest(ChatPrompt(USER), SamplingParams(guided_decoding={"choice": ["a"]}))
    guide = build(request).requests[0].guided_decoding
    assert (guide.type, guide.guide) == (GuideType.CHOICE, '["a"]')
    module = ScriptedModule()
    module.validate_guided_decoding_params = lambda params: (False, "/secret/path")  # type: ignore[attr-defined]
    builder = NativeRequestBuilder(module, context_cache=False, has_draft_model=False)  # type: ignore[arg-type]
    with pytest.raises(InvalidSchemaError) as refusal:
        builder.build(request)
    assert refusal.value.param == "guided_decoding.choice"
    assert "secret" not in str(refusal.value)


def test_what_asks_for_nothing_in_a_schema_does_not_reach_the_engine() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "uniqueItems": False}, "uniqueItems": False},
        "const": {"uniqueItems": False},
    }
    expected = {
        "type": "object",
        "properties": {"a": {"type": "array"}, "uniqueItems": False},
        "const": schema["const"],
    }
    call = {"type": "json_schema", "json_schema": {"uniqueItems": False}}
    for asked, reaches in (
        ({"json_schema": schema}, expected),
        (
            {"structural_tag": {"type": "structural_tag", "format": call}},
            {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": {}}},
        ),
    ):
        native = build(GenerationRequest(ChatPrompt(USER), SamplingParams(guided_decoding=asked)))
        assert json.loads(native.requests[0].guided_decoding.guide) == reaches


def test_a_schema_that_the_engine_would_pass_over_in_part_is_refused_by_path() -> None:
    call = {"type": "json_schema", "json_schema": {"not": {}}}
    for asked, path in (
        ({"json_schema": {"properties": {"a": {"uniqueItems": True}}}}, "json_schema.properties.a.uniqueItems"),
        ({"structural_tag": {"type": "structural_tag", "format": call}}, "structural_tag.format.json_schema.not"),
    ):
        request = GenerationRequest(ChatPrompt(USER), SamplingParams(guided_decoding=asked))
        with pytest.raises(InvalidSchemaError) as refusal:
            build(request)
        assert refusal.value.param == f"guided_decoding.{path}"
