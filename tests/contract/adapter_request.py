"""Builds one request with everything in it through the product's adapter, and prints what the module then holds.

``python -m tests.contract.adapter_request native``, or ``nvidia FOLDER``.
"""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any

from tests.contract.inspect_module import load

from edgellm.parsing.messages import template_message
from edgellm.runtime.generation import ChatPrompt, GenerationRequest
from edgellm.runtime.native_request import NativeRequestBuilder
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.runtime.tools import template_tool

PARAMS = SamplingParams(
    temperature=0.5,
    top_p=0.75,
    top_k=7,
    seed=2**64 - 1,
    max_tokens=9,
    num_logprobs=3,
    stop=["ü", "\n\n"],
    logit_bias={"4": -1, 2**31 - 1: 100},
    enable_thinking=True,
    reasoning_effort="low",
    disable_spec_decode=True,
    skip_special_tokens=False,
    reuse_context=False,
    cache_generated_tokens=False,
    guided_decoding={"json_schema": {"type": "object"}},
)
CALL = {"id": "c", "function": {"name": "f", "arguments": {"städte": ["Köln"]}}}
PROMPT = ChatPrompt(
    [
        {"role": "system", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": "🙂"}, "b"], "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning": None},
        {"role": "assistant", "tool_calls": [{"id": "d", "function": {"name": "g", "arguments": ""}}]},
        {"role": "tool", "tool_call_id": "c", "content": "42"},
    ],
    tools=[{"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}}],
    parallel_tool_calls=False,
    add_generation_prompt=False,
)


def held(module: ModuleType) -> dict[str, Any]:
    """The fields as the module gives them back."""
    builder = NativeRequestBuilder(module, context_cache=True, has_draft_model=True)
    native, channel = builder.build(GenerationRequest(PROMPT, PARAMS))
    (item,) = native.requests
    return {
        "sampling": [native.temperature, native.top_p, native.top_k, native.max_generate_length, native.num_logprobs],
        "switches": [native.enable_thinking, native.disable_spec_decode, native.skip_special_tokens],
        "template": [native.apply_chat_template, native.add_generation_prompt, native.reasoning_effort],
        "policies": [native.context_cache_lookup_policy.name, native.context_cache_commit_policy.name],
        "replay tail": native.context_cache_replay_tail_length,
        "tools": [template_tool(tool) for tool in native.tools],
        "tool choice": [native.tool_choice.mode.name, native.tool_choice.function_name, native.parallel_tool_calls],
        "messages": [template_message(message) for message in item.messages],
        "item": [item.stop_strings, sorted(item.logit_bias.items()), item.sampling_seed],
        "guide": [item.guided_decoding.type.name, item.guided_decoding.guide],
        "channels": [len(native.stream_channels), channel.get_skip_special_tokens()],
    }


if __name__ == "__main__":
    json.dump(held(load(sys.argv[1:])), sys.stdout)
