"""Tool definitions and choices, by what was present."""

from __future__ import annotations

from typing import Any

import pytest

from edgellm.errors import RequestError
from edgellm.runtime.tools import Tool, ToolChoice, normalise_tools, template_tool

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "x": "é"}}}


def test_has_flags_tell_which_keys_were_present() -> None:
    full = {"type": "function", "function": {"name": "f", "description": None, "parameters": {}, "strict": False}}
    tools, choice = normalise_tools([{"function": {"name": "bare"}}, full])
    assert tools == [
        Tool("bare"),
        Tool("f", "", "{}", strict=False, has_description=True, has_parameters=True, has_strict=True),
    ]
    assert choice == ToolChoice("auto")
    assert template_tool(tools[0]) == {"type": "function", "function": {"name": "bare"}}
    assert template_tool(tools[1])["function"] == {
        "name": "f",
        "description": "",
        "parameters": {},
        "strict": False,
    }


def test_parameters_are_compact_json_without_ascii_escapes() -> None:
    (tool,), _ = normalise_tools([WEATHER])
    assert tool.parameters == '{"type":"object","x":"é"}'


def test_choice_none_renders_no_tools() -> None:
    assert normalise_tools([WEATHER], "none") == ([], ToolChoice("none"))


@pytest.mark.parametrize("tools", [None, []])
def test_null_and_empty_tools_are_absent(tools: Any) -> None:
    assert normalise_tools(tools) == ([], ToolChoice("auto"))
    assert normalise_tools(tools, None) == ([], ToolChoice("auto"))


def test_a_named_function_is_a_choice_of_its_own() -> None:
    _, choice = normalise_tools([WEATHER], {"type": "function", "function": {"name": "weather"}})
    assert choice == ToolChoice("function", "weather")
    assert normalise_tools([WEATHER], "required")[1] == ToolChoice("required")


@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        ("x", "auto", "tools"),
        ({"a": 1}, "auto", "tools"),
        ([WEATHER] * 129, "auto", "tools"),
        (["x"], "auto", "tools[0]"),
        ([{"type": "retrieval"}], "auto", "tools[0]"),
        ([{"type": "function"}], "auto", "tools[0].function"),
        ([{"function": {"name": ""}}], "auto", "tools[0].function.name"),
        ([{"function": {"name": 3}}], "auto", "tools[0].function.name"),
        ([WEATHER, WEATHER], "auto", "tools[1].function.name"),
        ([{"function": {"name": "f", "parameters": []}}], "auto", "tools[0].function.parameters"),
        ([{"function": {"name": "f", "parameters": {"a": float("inf")}}}], "auto", "tools[0].function.parameters"),
        ([{"function": {"name": "f", "strict": 1}}], "auto", "tools[0].function.strict"),
        ([{"function": {"name": "f", "description": "\ud800"}}], "auto", "tools[0].function.description"),
        ([WEATHER], "always", "tool_choice"),
        ([WEATHER], 3, "tool_choice"),
        ([WEATHER], {"type": "function", "function": {"name": "other"}}, "tool_choice"),
        ([], "required", "tool_choice"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(tools: Any, choice: Any, param: str) -> None:
    with pytest.raises(RequestError) as refusal:
        normalise_tools(tools, choice)
    assert refusal.value.param == param


@pytest.mark.parametrize("kind", ["string", ["array", "null"], None, 5])
def test_arguments_are_an_object(kind: object) -> None:
    with pytest.raises(RequestError) as refusal:
        normalise_tools([{"type": "function", "function": {"name": "f", "parameters": {"type": kind}}}])
    assert refusal.value.param == "tools[0].function.parameters.type"
    for taken in ({}, {"type": "object"}, {"type": ["object", "null"]}, {"properties": {}}):
        assert normalise_tools([{"type": "function", "function": {"name": "f", "parameters": taken}}])
