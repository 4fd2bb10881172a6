"""Properties of chat completions over any answer and any tools: a stream says what a whole answer says."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.api.asgi_client import Answer, application, run
from tests.unit.parsing.test_any_answer import TEXTS
from tests.unit.serving.scripted_lane import ScriptedGeneration, ScriptedLane, spec_of

from edgellm.parsing.output_style import OutputStyle
from edgellm.runtime.outputs import LogprobEntry, StreamDelta

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("run", "stop")]
STYLES = st.builds(
    OutputStyle,
    reasoning_parser=st.sampled_from(["none", "qwen3", "muse_glimmer"]),
    tool_parser=st.sampled_from(["generic", "hermes", "qwen3_xml", "nemotron", "openai"]),
    opens_reasoning=st.booleans(),
    shows_tools=st.booleans(),
    special_marks=st.booleans(),
)


def _saying(text: str, cuts: list[int], reason: str) -> Any:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]

    def script(generation: ScriptedGeneration) -> None:
        for piece in pieces:
            entry = LogprobEntry(1, -1.0, piece, piece.encode())
            generation.give(StreamDelta(text=piece, token_ids=[1], logprobs=[[entry]]))
        generation.finish(reason)

    return script


def _whole(answer: Answer) -> dict[str, Any]:
    [choice] = answer.json["choices"]
    message = choice["message"]
    return {
        "content": message["content"] or "",
        "reasoning": message.get("reasoning_content", ""),
        "calls": [call["function"] for call in message.get("tool_calls", [])],
        "reason": choice["finish_reason"],
        "logprobs": len((choice["logprobs"] or {"content": []})["content"]),
        "usage": answer.json["usage"],
    }


def _streamed(answer: Answer) -> dict[str, Any]:
    *chunks, usage, done = answer.events
    assert done == "[DONE]"
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"]["role"] == "assistant"
    assert all(choice["finish_reason"] is None for choice in choices[:-1])
    calls: list[dict[str, str]] = []
    for entry in (entry for choice in choices for entry in choice["delta"].get("tool_calls", [])):
        if "id" in entry:
            assert entry["index"] == len(calls)
            calls.append({"name": entry["function"]["name"], "arguments": ""})
        calls[entry["index"]]["arguments"] += entry["function"]["arguments"]
    return {
        "content": "".join(choice["delta"].get("content") or "" for choice in choices),
        "reasoning": "".join(choice["delta"].get("reasoning_content", "") for choice in choices),
        "calls": calls,
        "reason": choices[-1]["finish_reason"],
        "logprobs": sum(len((choice["logprobs"] or {"content": []})["content"]) for choice in choices),
        "usage": usage["usage"],
    }


@settings(max_examples=80, deadline=None)
@given(
    style=STYLES,
    text=TEXTS,
    cuts=st.lists(st.integers(0, 200), max_size=6),
    reason=st.sampled_from(["stop", "length"]),
    choice=st.sampled_from(["auto", "none", "required"]),
    parallel=st.booleans(),
)
def test_a_stream_says_what_a_whole_answer_says(
    style: OutputStyle, text: str, cuts: list[int], reason: str, choice: str, parallel: bool
) -> None:
    fields = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": parallel, "logprobs": True}

    async def scenario() -> None:
        lane = ScriptedLane(_saying(text, cuts, reason), output_style=style)
        async with application(lane, specs=[spec_of(lane)]) as (client, _):
            whole = _whole(await client.chat(**fields))
            streamed = _streamed(await client.chat(stream=True, stream_options={"include_usage": True}, **fields))
            assert streamed == whole
            for call in whole["calls"]:
                assert choice != "none"
                assert isinstance(json.loads(call["arguments"]), dict)
            assert (whole["reason"] == "tool_calls") <= bool(whole["calls"])

    run(scenario())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


def _mostly(real: Any) -> Any:
    return st.one_of(st.just(real), st.just(real), JSON)


FUNCTIONS = st.fixed_dictionaries(
    {"name": _mostly("run")},
    optional={"description": _mostly("Runs"), "parameters": _mostly({"type": "object"}), "strict": _mostly(True)},
)
FUZZED_TOOLS = st.lists(st.fixed_dictionaries({"type": _mostly("function"), "function": FUNCTIONS | JSON}), max_size=3)
CALLS = st.lists(
    st.fixed_dictionaries(
        {"id": _mostly("a"), "function": st.fixed_dictionaries({"name": _mostly("run"), "arguments": _mostly("{}")})},
        optional={"type": _mostly("function"), "index": JSON},
    ),
    max_size=2,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": _mostly("assistant") | st.sampled_from(["user", "tool", "system"])},
        optional={
            "content": _mostly("x"),
            "tool_calls": CALLS | JSON,
            "tool_call_id": _mostly("a"),
            "function_call": _mostly({"name": "run", "arguments": "{}"}),
            "reasoning_content": _mostly("x"),
        },
    ),
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(
    tools=FUZZED_TOOLS | JSON,
    choice=_mostly("auto") | st.just({"type": "function", "function": {"name": "run"}}),
    messages=MESSAGES | JSON,
    shows_tools=st.booleans(),
)
def test_any_tools_and_messages_give_an_answer_or_a_400(
    tools: Any, choice: Any, messages: Any, shows_tools: bool
) -> None:
    body = {"messages": messages, "tools": tools, "tool_choice": choice}
    try:
        json.dumps(body).encode()
    except UnicodeEncodeError:
        return

    async def scenario() -> None:
        lane = ScriptedLane(_saying("a", [], "stop"), output_style=OutputStyle(shows_tools=shows_tools))
        async with application(lane) as (client, _):
            answer = await client.post("/v1/chat/completions", body)
            assert answer.status in (200, 400)
            if answer.status == 400:
                assert answer.error["message"]

    run(scenario())
