"""Anthropic messages become the messages of a chat, each with the place it came from."""

from __future__ import annotations

from typing import Any

import pytest

from edgellm.api.anthropic_prompt import anthropic_prompt
from edgellm.api.media_parts import MediaParts
from edgellm.api.wire.anthropic import MessagesRequest
from edgellm.api.wire.fields import ParseContext
from edgellm.api.wire.validation import validated
from edgellm.errors import RequestError, UnsupportedModalityError, UnsupportedParameterError
from edgellm.runtime.generation import ChatPrompt

WEATHER = {"name": "weather", "description": "Tells it.", "input_schema": {"type": "object", "properties": {}}}
USE = {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Oslo"}}


def parsed(**fields: Any) -> MessagesRequest:
    body = {"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}], **fields}
    return validated(MessagesRequest, body, ParseContext())


def prompt_of(*messages: dict[str, Any], **fields: Any) -> tuple[ChatPrompt, list[str]]:
    return anthropic_prompt(parsed(messages=list(messages), **fields), MediaParts(("text",)))


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(value: str, **further: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **further}


def result(content: Any = "12°", **further: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "call_1", "content": content, **further}


@pytest.mark.parametrize("system", ["Be brief.", [text("Be brief.", cache_control={"type": "ephemeral"})]])
def test_a_system_text_comes_first_in_either_form(system: Any) -> None:
    prompt, origins = prompt_of(user("Hi"), system=system)
    assert [message["role"] for message in prompt.messages] == ["system", "user"]
    assert origins == ["system", "messages[0]"]
    content = prompt.messages[0]["content"]
    assert content == "Be brief." or content == [text("Be brief.")]


def test_a_round_of_tools_becomes_calls_and_results() -> None:
    prompt, origins = prompt_of(
        user("Weather?"),
        assistant({"type": "thinking", "thinking": "Look.", "signature": "s"}, text("I look."), USE),
        user([result([text("12°"), text(" and dry")]), text("So?")]),
        tools=[WEATHER],
    )
    assert prompt.messages == [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": [text("I look.")],
            "reasoning_content": "Look.",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": [text("12°"), text(" and dry")]},
        {"role": "user", "content": [text("So?")]},
    ]
    assert origins == ["messages[0]", "messages[1]", "messages[2].content[0]", "messages[2]"]
    [tool] = prompt.tools
    assert tool["function"] == {
        "name": "weather",
        "description": "Tells it.",
        "parameters": WEATHER["input_schema"],
    }


@pytest.mark.parametrize("content", ["no such city", [text("no such city")]])
def test_a_tool_that_failed_says_so(content: Any) -> None:
    prompt, _ = prompt_of(user("?"), assistant(USE), user([result(content, is_error=True)]), tools=[WEATHER])
    said = prompt.messages[2]["content"]
    joined = said if isinstance(said, str) else "".join(part["text"] for part in said)
    assert joined == "[tool error] no such city"


def test_turns_of_one_role_are_one_turn() -> None:
    prompt, origins = prompt_of(
        user("One"), user([text("two")]), assistant(text("a")), assistant(USE), user([result()])
    )
    assert [message["role"] for message in prompt.messages] == ["user", "assistant", "tool"]
    assert [part["text"] for part in prompt.messages[0]["content"]] == ["One", "\n\n", "two"]
    assert prompt.messages[1]["content"] == [text("a")]
    assert len(prompt.messages[1]["tool_calls"]) == 1
    assert origins == ["messages[0]", "messages[2]", "messages[4].content[0]"]


def test_thinking_is_forgotten_as_asked() -> None:
    turns = []
    for number in range(3):
        turns += [user("?"), assistant({"type": "thinking", "thinking": f"t{number}", "signature": ""}, text("a"))]
    turns.append(user("?"))

    def thoughts(**fields: Any) -> list[str]:
        prompt, _ = prompt_of(*turns, **fields)
        return [m["reasoning_content"] for m in prompt.messages if "reasoning_content" in m]

    def edit(keep: Any) -> dict[str, Any]:
        return {"context_management": {"edits": [{"type": "clear_thinking_20251015", **keep}]}}

    assert thoughts() == thoughts(**edit({"keep": "all"})) == ["t0", "t1", "t2"]
    assert thoughts(**edit({"keep": {"type": "thinking_turns", "value": 2}})) == ["t1", "t2"]
    assert thoughts(**edit({})) == ["t2"]
    redacted, _ = prompt_of(user("?"), assistant({"type": "redacted_thinking", "data": "x"}, text("a")), user("?"))
    assert "reasoning_content" not in redacted.messages[1]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, ("auto", True)),
        ({"type": "any", "disable_parallel_tool_use": True}, ("required", False)),
        ({"type": "tool", "name": "weather"}, ({"type": "function", "function": {"name": "weather"}}, True)),
        ({"type": "none"}, ("none", True)),
    ],
)
def test_tool_choices(choice: dict[str, Any], expected: tuple[Any, bool]) -> None:
    prompt, _ = prompt_of(user("?"), tools=[WEATHER], tool_choice=choice)
    assert (prompt.tool_choice, prompt.parallel_tool_calls) == expected


@pytest.mark.parametrize(
    ("messages", "fields", "param"),
    [
        ([user("?"), assistant(text("Once upon"))], {}, "messages[1]"),
        ([user([text("?"), USE])], {}, "messages[0].content[1]"),
        ([user("?"), assistant(result()), user("?")], {}, "messages[1].content[0]"),
        ([user([result()])], {}, "messages[0].content[0].tool_use_id"),
        ([user("?")], {"tool_choice": {"type": "any"}}, "tool_choice.type"),
        ([user("?")], {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name"),
    ],
)
def test_what_makes_no_sense_is_refused_by_place(
    messages: list[dict[str, Any]], fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(RequestError) as refused:
        prompt_of(*messages, **fields)
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("content", "param"),
    [
        ([text("?"), {"type": "image", "source": {"type": "url", "url": "http://x"}}], "messages[2].content[1]"),
        ([result([{"type": "document", "source": {}}])], "messages[2].content[0].content[0]"),
    ],
)
def test_media_is_refused_by_place(content: Any, param: str) -> None:
    with pytest.raises(UnsupportedModalityError) as refused:
        prompt_of(user("?"), assistant(USE), user(content))
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 5}]}, "tools[0].type"),
        ({"tools": [{**WEATHER, "input_examples": [{}]}]}, "tools[0].input_examples"),
        ({"mcp_servers": [{"url": "http://x"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management.edits[0].type"),
        ({"service_tier": "priority"}, "service_tier"),
    ],
)
def test_what_this_server_lacks_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(UnsupportedParameterError) as refused:
        parsed(**fields)
    assert refused.value.param == param
