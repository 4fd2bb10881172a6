from __future__ import annotations

from typing import Any

import pytest
from tests.unit.parsing.chat_templates import TEMPLATES, TIME_TOOL

from edgellm.errors import RequestError, UnsupportedModalityError
from edgellm.parsing.chat_template import ChatTemplate
from edgellm.parsing.messages import normalise_messages
from edgellm.parsing.template_messages import messages_for_template, tools_for_template
from edgellm.parsing.template_traits import TemplateTraits, template_traits

STRINGS = TemplateTraits(
    takes_parts=False,
    needs_parts=False,
    takes_null=False,
    merges_systems=False,
    arguments_as_text=False,
    shows_tools=True,
)


def traits(**changes: bool) -> TemplateTraits:
    return TemplateTraits(**{**{name: getattr(STRINGS, name) for name in STRINGS.__slots__}, **changes})


def plain(text: str) -> str:
    return text


def normal(*messages: dict[str, Any], **changes: bool) -> list[dict[str, Any]]:
    return messages_for_template(normalise_messages(messages), traits(**changes), plain)[0]


def content(value: Any, **changes: bool) -> Any:
    return normal({"role": "user", "content": value}, **changes)[0]["content"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chatml", traits(shows_tools=False)),
        ("alternating", traits(shows_tools=False, merges_systems=True)),
        ("reasoning", traits(takes_parts=True, takes_null=True)),
        ("text_arguments", traits(arguments_as_text=True)),
        ("parts_only", traits(takes_parts=True, needs_parts=True, shows_tools=False)),
    ],
)
def test_what_a_template_takes_is_found_by_probing(name: str, expected: TemplateTraits) -> None:
    assert template_traits(ChatTemplate(TEMPLATES[name])) == expected


@pytest.mark.parametrize("source", ["", "constant", "{{ raise_exception('no') }}", "{{ messages | tojson }}"])
def test_strange_templates_can_be_probed(source: str) -> None:
    assert not template_traits(ChatTemplate(source)).needs_parts


PARTS = [{"type": "text", "text": "a"}, "b", {"text": "c"}, {"type": "input_text", "text": "d"}]


def test_text_parts_are_joined_without_a_joiner_or_kept() -> None:
    assert content(PARTS) == "abcd"
    assert content(PARTS, takes_parts=True) == [{"type": "text", "text": text} for text in "abcd"]


def test_text_stays_text_unless_the_template_needs_parts() -> None:
    assert content("x", takes_parts=True) == "x"
    assert content("x", takes_parts=True, needs_parts=True) == [{"type": "text", "text": "x"}]


def test_null_and_absent_content_are_kept_apart_where_they_can_be() -> None:
    calls = [{"function": {"name": "f"}}]
    null = {"role": "assistant", "content": None, "tool_calls": calls}
    absent = {"role": "assistant", "tool_calls": calls}
    assert [message.get("content", "absent") for message in normal(null, absent, takes_null=True)] == [None, "absent"]
    assert [message["content"] for message in normal(null, absent)] == ["", ""]


def test_a_refusal_is_what_the_assistant_said() -> None:
    assert normal({"role": "assistant", "content": None, "refusal": "No."})[0]["content"] == "No."
    assert content([{"type": "refusal", "refusal": "No."}]) == "No."


def test_developer_is_system() -> None:
    assert normal({"role": "developer", "content": "x"}) == [{"role": "system", "content": "x"}]


def test_leading_systems_are_merged_where_the_template_takes_one() -> None:
    messages = (
        {"role": "system", "content": "a"},
        {"role": "developer", "content": [{"type": "text", "text": "b"}]},
        {"role": "user", "content": "c"},
        {"role": "system", "content": "d"},
    )
    merged, origins = messages_for_template(normalise_messages(messages), traits(merges_systems=True), plain)
    assert [message["content"] for message in merged] == ["a\n\nb", "c", "d"]
    assert origins == [0, 2, 3]
    as_parts = normal(*messages, merges_systems=True, takes_parts=True)
    assert [part["text"] for part in as_parts[0]["content"]] == ["a", "\n\n", "b"]
    assert len(normal(*messages)) == 4


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"reasoning_content": "a", "reasoning": "b"}, "a"),
        ({"reasoning": "b"}, "b"),
        ({"reasoning_content": None, "reasoning": "b"}, ""),
        ({"reasoning_content": ""}, ""),
        ({"reasoning_content": None}, ""),
        ({}, None),
    ],
)
def test_reasoning_content_wins_over_reasoning(message: dict[str, Any], expected: str | None) -> None:
    assert normal({"role": "assistant", "content": "x", **message})[0].get("reasoning_content") == expected


@pytest.mark.parametrize(
    ("arguments", "as_object", "as_text"),
    [
        ('{"a": 1}', {"a": 1}, '{"a": 1}'),
        ({"a": "ü"}, {"a": "ü"}, '{"a": "ü"}'),
        ("", {}, ""),
        ("[1]", "[1]", "[1]"),
    ],
)
def test_arguments_of_calls_take_the_form_the_template_takes(arguments: Any, as_object: Any, as_text: str) -> None:
    message = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": arguments}}]}
    for expected, flag in ((as_object, False), (as_text, True)):
        (call,) = normal(message, arguments_as_text=flag)[0]["tool_calls"]
        assert call == {"id": "1", "type": "function", "function": {"name": "f", "arguments": expected}}


def test_calls_without_a_wrapper_and_the_legacy_form_become_calls() -> None:
    bare = normal({"role": "assistant", "tool_calls": [{"name": "f"}]})[0]["tool_calls"]
    legacy = normal({"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}})[0]["tool_calls"]
    assert bare == legacy == [{"type": "function", "function": {"name": "f", "arguments": {}}}]
    both = {"role": "assistant", "tool_calls": [{"name": "g"}], "function_call": {"name": "f"}}
    assert normal(both)[0]["tool_calls"][0]["function"]["name"] == "g"
    assert "tool_calls" not in normal({"role": "assistant", "content": "x", "tool_calls": []})[0]


def test_names_and_ids_are_passed_on_and_other_fields_are_not() -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "1", "name": "f"}]}
    message = {"role": "tool", "content": "x", "tool_call_id": "1", "name": "f", "annotations": [], "audio": None}
    assert normal(call, message)[1] == {"role": "tool", "content": "x", "tool_call_id": "1", "name": "f"}


def test_arguments_nested_without_end_are_refused() -> None:
    nested: Any = "x"
    for _ in range(200):
        nested = [nested]
    message = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": nested}}}]}
    with pytest.raises(RequestError, match="nested more than 64 deep"):
        normal(message)


def test_every_text_that_reaches_the_prompt_is_guarded() -> None:
    seen: list[str] = []

    def note(text: str) -> str:
        seen.append(text)
        return text

    messages = [
        {"role": "user", "content": [{"type": "text", "text": "t"}, "u"], "name": "n"},
        {
            "role": "assistant",
            "content": None,
            "refusal": "r",
            "reasoning": "w",
            "tool_calls": [{"id": "i", "function": {"name": "f", "arguments": {"k": ["v"]}}}],
        },
        {"role": "tool", "content": "c", "tool_call_id": "i"},
    ]
    messages_for_template(normalise_messages(messages), STRINGS, note)
    assert set(seen) == {"t", "u", "n", "r", "w", "i", "f", "k", "v", "c"}
    seen.clear()
    tools_for_template([TIME_TOOL], note)
    assert TIME_TOOL["function"]["name"] in seen


PICTURED = {
    "role": "user",
    "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}],
}


def test_an_image_keeps_its_place_among_texts() -> None:
    messages = normalise_messages([PICTURED], modalities=("text", "image"))
    (rendered,), _ = messages_for_template(messages, traits(takes_parts=True), plain)
    assert rendered["content"] == [{"type": "text", "text": "see"}, {"type": "image"}]


def test_a_template_without_parts_has_no_place_for_an_image() -> None:
    messages = normalise_messages([PICTURED], modalities=("text", "image"))
    with pytest.raises(UnsupportedModalityError, match=r"messages\[0\]\.content\[1\]: .* no place for image input"):
        messages_for_template(messages, STRINGS, plain)
