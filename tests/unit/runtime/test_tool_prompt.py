"""Tools told in text, for templates that have no place for them."""

from __future__ import annotations

from typing import Any

import pytest

from edgellm.errors import RequestError, UnsupportedModalityError
from edgellm.runtime.generation import ChatPrompt
from edgellm.runtime.tool_prompt import with_tools_as_text
from edgellm.runtime.tools import Tool

TOOL = Tool("look", "Looks", '{"type":"object"}', has_description=True, has_parameters=True)
USER = {"role": "user", "content": "Where?"}
CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
CALL_TEXT = '<tool_call>\n{"name": "look", "arguments": {"at": 1}}\n</tool_call>'
ANSWER = {"role": "tool", "tool_call_id": "a", "content": "There"}


def _told(messages: list[dict[str, Any]], *tools: Tool) -> list[dict[str, Any]]:
    prompt = with_tools_as_text(ChatPrompt(messages, tools=[{}], tool_choice="required"), tools)
    assert (prompt.tools, prompt.tool_choice) == ((), "auto")
    return [dict(message) for message in prompt.messages]


def test_messages_without_tools_stay_as_they_are() -> None:
    assert _told([USER, {"role": "assistant", "content": None}]) == [USER, {"role": "assistant", "content": None}]


def test_tools_stand_in_the_system_message_or_before_the_first() -> None:
    system, user = _told([{"role": "system", "content": "Be brief."}, USER], TOOL)
    assert system["content"].startswith("Be brief.\n\n")
    assert '{"type": "function", "function": {"name": "look", "description": "Looks"' in system["content"]
    assert user == USER
    [alone] = _told([USER], TOOL)
    assert alone["content"].endswith("\n\nWhere?")
    assert "<tool_call>" in alone["content"]


def test_content_in_parts_stays_in_parts() -> None:
    parts = [{"type": "text", "text": "Where?"}]
    [user] = _told([{"role": "user", "content": parts}], TOOL)
    assert [part["type"] for part in user["content"]] == ["text", "text"]
    assert user["content"][1:] == parts
    [system, _] = _told([{"role": "developer", "content": parts}, USER], TOOL)
    assert system["content"][0] == parts[0]


def test_calls_and_results_become_text() -> None:
    messages = [
        USER,
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL, {**CALL, "id": "b"}]},
        ANSWER,
        {**ANSWER, "tool_call_id": "b", "content": [{"type": "text", "text": "He"}, "re"]},
        {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": {"at": 1}}},
    ]
    _, called, results, legacy = _told(messages)
    assert called == {"role": "assistant", "content": f"I look.\n{CALL_TEXT}\n{CALL_TEXT}"}
    assert results == {
        "role": "user",
        "content": "<tool_response>\nThere\n</tool_response>\n<tool_response>\nHere\n</tool_response>",
    }
    assert legacy == {"role": "assistant", "content": CALL_TEXT}


def test_a_call_without_arguments_has_none() -> None:
    call = {"id": "a", "function": {"name": "look", "arguments": ""}}
    [called] = _told([{"role": "assistant", "tool_calls": [call]}])
    assert '"arguments": {}' in called["content"]


def test_wrong_messages_are_named_as_they_were_sent() -> None:
    with pytest.raises(RequestError) as refusal:
        _told([USER, ANSWER], TOOL)
    assert refusal.value.param == "messages[1].tool_call_id"


def test_images_of_results_keep_their_places() -> None:
    image, seen = {"type": "image"}, {"type": "text", "text": "seen: "}
    messages = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "b"}]},
        {**ANSWER, "content": [seen, image]},
        {**ANSWER, "tool_call_id": "b", "content": [image, "end"]},
    ]
    prompt = with_tools_as_text(ChatPrompt(messages), [], ("text", "image"))
    assert prompt.messages[-1] == {
        "role": "user",
        "content": [
            {"type": "text", "text": "<tool_response>\nseen: "},
            image,
            {"type": "text", "text": "\n</tool_response>\n<tool_response>\n"},
            image,
            {"type": "text", "text": "end\n</tool_response>"},
        ],
    }
    with pytest.raises(UnsupportedModalityError) as refused:
        with_tools_as_text(ChatPrompt(messages), [])
    assert refused.value.param == "messages[2].content[1]"
