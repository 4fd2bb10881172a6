"""Messages in OpenAI form, as the contract keeps them apart, and back as templates see them."""

from __future__ import annotations

from typing import Any

import pytest

from edgellm.errors import RequestError, UnsupportedModalityError
from edgellm.parsing.messages import (
    ChatMessage,
    ContentPart,
    ToolCall,
    normalise_messages,
    template_message,
)


def one(message: dict[str, Any], *before: dict[str, Any]) -> ChatMessage:
    return normalise_messages([*before, message])[-1]


def test_a_string_is_one_text_part() -> None:
    message = one({"role": "user", "content": "hi"})
    assert message.contents == [ContentPart("text", "hi")]
    assert (message.has_content, message.content_is_null, message.content_is_array) == (True, False, False)


def test_content_absent_null_and_array_are_kept_apart() -> None:
    absent = one({"role": "assistant", "tool_calls": [{"name": "f"}]})
    null = one({"role": "assistant", "content": None})
    array = one({"role": "assistant", "content": []})
    assert (absent.has_content, absent.content_is_null, absent.content_is_array) == (False, False, False)
    assert (null.has_content, null.content_is_null, null.content_is_array) == (True, True, False)
    assert (array.has_content, array.content_is_null, array.content_is_array) == (True, False, True)
    assert "content" not in template_message(absent)
    assert template_message(null)["content"] is None
    assert template_message(array)["content"] == []


def test_text_parts_and_their_aliases_stay_parts() -> None:
    parts = ["a", {"type": "text", "text": "b"}, {"type": "input_text", "text": "c"}, {"text": "d"}]
    message = one({"role": "user", "content": [*parts, {"type": "refusal", "refusal": "e"}]})
    assert [part.content for part in message.contents] == ["a", "b", "c", "d", "e"]
    assert template_message(message)["content"] == [{"type": "text", "text": letter} for letter in "abcde"]


@pytest.mark.parametrize(
    "kind", ["image", "image_url", "audio", "input_audio", "audio_url", "video", "video_url", "input_image"]
)
def test_media_parts_are_refused_with_their_index(kind: str) -> None:
    content = [{"type": "text", "text": "look"}, {"type": kind, kind: {"url": "data:"}}]
    with pytest.raises(UnsupportedModalityError) as refusal:
        normalise_messages([{"role": "system", "content": "s"}, {"role": "user", "content": content}])
    assert refusal.value.param == "messages[1].content[1]"


@pytest.mark.parametrize("calls", [None, []])
def test_empty_tool_calls_are_dropped(calls: Any) -> None:
    message = one({"role": "assistant", "content": "x", "tool_calls": calls})
    assert (message.has_tool_calls, message.tool_calls) == (False, [])


def test_string_arguments_stay_strings_and_others_are_dumped_compactly() -> None:
    message = one(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{ "a" : 1 }'}},
                {"id": "2", "function": {"name": "f", "arguments": {"städte": ["Köln", 1]}}},
                {"id": "3", "function": {"name": "f", "arguments": ""}},
                {"name": "bare"},
            ],
        }
    )
    assert message.tool_calls == [
        ToolCall("1", "function", "f", '{ "a" : 1 }', arguments_is_string=True),
        ToolCall("2", "function", "f", '{"städte":["Köln",1]}', arguments_is_string=False),
        ToolCall("3", "function", "f", "", arguments_is_string=True),
        ToolCall("", "function", "bare", "{}", arguments_is_string=False),
    ]
    rendered = template_message(message)["tool_calls"]
    assert rendered[0]["function"]["arguments"] == '{ "a" : 1 }'
    assert rendered[1]["function"]["arguments"] == {"städte": ["Köln", 1]}
    assert rendered[3] == {"type": "function", "function": {"name": "bare", "arguments": {}}}


def test_a_legacy_function_call_is_one_call_only_without_tool_calls() -> None:
    legacy = {"name": "old", "arguments": "{}"}
    alone = one({"role": "assistant", "content": None, "function_call": legacy})
    assert [call.name for call in alone.tool_calls] == ["old"]
    with_empty = one({"role": "assistant", "content": None, "function_call": legacy, "tool_calls": []})
    assert [call.name for call in with_empty.tool_calls] == ["old"]
    beside = one({"role": "assistant", "content": None, "function_call": legacy, "tool_calls": [{"name": "new"}]})
    assert [call.name for call in beside.tool_calls] == ["new"]


@pytest.mark.parametrize(
    ("keys", "reasoning"),
    [
        ({}, (False, "")),
        ({"reasoning_content": None}, (True, "")),
        ({"reasoning": None}, (True, "")),
        ({"reasoning": "b"}, (True, "b")),
        ({"reasoning_content": "a", "reasoning": "b"}, (True, "a")),
        ({"reasoning_content": None, "reasoning": "b"}, (True, "")),
    ],
)
def test_reasoning_content_comes_before_reasoning_and_null_counts_as_present(
    keys: dict[str, Any], reasoning: tuple[bool, str]
) -> None:
    message = one({"role": "assistant", "content": "x", **keys})
    assert (message.has_reasoning_content, message.reasoning_content) == reasoning
    assert ("reasoning_content" in template_message(message)) is reasoning[0]


def test_a_message_that_the_server_produced_is_accepted_again() -> None:
    produced = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "reasoning_content": "because",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    answer = {"role": "tool", "tool_call_id": "call_1", "content": "42"}
    message = one(answer, {"role": "user", "content": "?"}, produced)
    assert message.tool_call_id == "call_1"
    refused = one({"role": "assistant", "content": None, "refusal": "no"})
    assert template_message(refused)["content"] == "no"


def test_a_tool_message_answers_an_earlier_call() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "f"}}]}
    for wrong in ({"role": "tool", "tool_call_id": "b", "content": "x"}, {"role": "tool", "content": "x"}):
        with pytest.raises(RequestError) as refusal:
            normalise_messages([call, wrong])
        assert refusal.value.param == "messages[1].tool_call_id"


def test_names_travel() -> None:
    assert template_message(one({"role": "user", "content": "x", "name": "ann"})) == {
        "role": "user",
        "content": "x",
        "name": "ann",
    }


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ("hi", "messages"),
        ({"role": "user"}, "messages"),
        ([], "messages"),
        ([{"role": "user", "content": "x"}] * 513, "messages"),
        (["hi"], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "robot", "content": "x"}], "messages[0].role"),
        ([{"role": "function", "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": 3}], "messages[0].content"),
        ([{"role": "user", "content": ["x"] * 65}], "messages[0].content"),
        ([{"role": "user", "content": [3]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "hologram"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": {"a": 1}}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": "\ud800"}], "messages[0].content"),
        ([{"role": "user", "content": ["\udfff"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": "x", "name": 3}], "messages[0].name"),
        ([{"role": "assistant", "content": None, "refusal": "\ud800"}], "messages[0].refusal"),
        ([{"role": "assistant", "content": "x", "reasoning": 3}], "messages[0].reasoning"),
        ([{"role": "assistant", "tool_calls": {"a": 1}}], "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": ["x"]}], "messages[0].tool_calls[0]"),
        ([{"role": "assistant", "tool_calls": [{"function": "x"}]}], "messages[0].tool_calls[0].function"),
        ([{"role": "assistant", "tool_calls": [{"function": {}}]}], "messages[0].tool_calls[0].function.name"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
            "messages[0].tool_calls[0].function.arguments",
        ),
        *(
            (
                [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}],
                "messages[0].tool_calls[0].function.arguments",
            )
            for arguments in ('{"a": NaN}', '{"a": "\\ud800"}', '{"\\udfff": 1}', "[" * 100_000, {"\ud800": 1})
        ),
        (
            [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": {"a": float("nan")}}]}],
            "messages[0].tool_calls[0].arguments",
        ),
        ([{"role": "assistant", "function_call": {"name": ""}}], "messages[0].function_call.name"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(messages: Any, param: str) -> None:
    with pytest.raises(RequestError) as refusal:
        normalise_messages(messages)
    assert refusal.value.param == param
