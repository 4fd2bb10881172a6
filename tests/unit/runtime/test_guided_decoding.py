"""Guided decoding arguments: one mode, known names, bounded and well-formed guides."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgellm.errors import InvalidSchemaError, RequestError
from edgellm.runtime.guided_decoding import (
    MAX_GUIDE_BYTES,
    MAX_GUIDE_DEPTH_LEVELS,
    GuidedDecoding,
    parse_guided_decoding,
)


@pytest.mark.parametrize(
    ("asked", "guide"),
    [
        ({"json_object": True}, GuidedDecoding("json_object")),
        ({"json_schema": {"type": "object"}}, GuidedDecoding("json_schema", '{"type":"object"}')),
        ({"json_schema": '{"type": "é"}'}, GuidedDecoding("json_schema", '{"type": "é"}')),
        ({"structural_tag": {"a": 1}}, GuidedDecoding("structural_tag", '{"a":1}')),
        ({"regex": "[0-9]+"}, GuidedDecoding("regex", "[0-9]+")),
        ({"ebnf": "root ::= x"}, GuidedDecoding("ebnf", "root ::= x")),
        ({"choice": ["yes", "né", ""]}, GuidedDecoding("choice", '["yes", "né", ""]')),
        (("regex", "a"), GuidedDecoding("regex", "a")),
        ({"type": "regex", "guide": "a"}, GuidedDecoding("regex", "a")),
        ({"type": "json_object"}, GuidedDecoding("json_object")),
        (GuidedDecoding("regex", "a"), GuidedDecoding("regex", "a")),
    ],
)
def test_each_mode_has_its_form(asked: Any, guide: GuidedDecoding) -> None:
    assert parse_guided_decoding(asked) == guide


@pytest.mark.parametrize(
    "asked",
    [
        None,
        {},
        {"json_object": False},
        {"json_object": None, "regex": "", "choice": [], "json_schema": None},
    ],
)
def test_null_empty_and_false_ask_for_nothing(asked: Any) -> None:
    assert parse_guided_decoding(asked) is None


def test_a_second_mode_is_refused_with_both_names() -> None:
    with pytest.raises(RequestError, match="json_object and regex"):
        parse_guided_decoding({"regex": "a", "json_object": True, "ebnf": ""})


@pytest.mark.parametrize("asked", [{"grammar": "x"}, {"regex": "a", "lark": None}, {"guide": "a"}])
def test_an_unknown_name_is_refused(asked: Any) -> None:
    with pytest.raises(RequestError, match="has no mode"):
        parse_guided_decoding(asked)


@pytest.mark.parametrize(
    "asked",
    [
        "regex",
        3,
        ("regex",),
        ("regex", "a", "b"),
        ("nonsense", "a"),
        {"json_object": 1},
        {"json_object": "true"},
        {"regex": ["a"]},
        {"choice": "yes"},
        {"choice": ["yes", 3]},
        {"choice": {"a": 1}},
        {"json_schema": ["a"]},
        {"json_schema": True},
        ("regex", ""),
        ("json_object", "{}"),
        ("choice", "[]"),
        ("choice", "[1]"),
        ("regex", 3),
        ("regex", "\ud800"),
    ],
)
def test_a_wrong_form_is_refused(asked: Any) -> None:
    with pytest.raises(RequestError) as refusal:
        parse_guided_decoding(asked)
    assert (refusal.value.param or "").startswith("guided_decoding")


@pytest.mark.parametrize(
    "asked",
    [
        {"json_schema": "{"},
        {"json_schema": "[1]"},
        {"json_schema": '{"a": NaN}'},
        {"json_schema": {"a": float("nan")}},
        {"json_schema": {"a": object()}},
        {"structural_tag": "3"},
        {"regex": "x" * (MAX_GUIDE_BYTES + 1)},
        {"regex": "é" * (MAX_GUIDE_BYTES // 2 + 1)},
        ("choice", "not json"),
    ],
)
def test_what_cannot_be_a_guide_is_an_invalid_schema(asked: Any) -> None:
    with pytest.raises(InvalidSchemaError):
        parse_guided_decoding(asked)


def nested_schema(levels: int) -> Any:
    schema: Any = "leaf"
    for _ in range(levels):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize("as_text", [True, False])
def test_depth_is_bounded(as_text: bool) -> None:
    allowed, deep = nested_schema(MAX_GUIDE_DEPTH_LEVELS - 1), nested_schema(MAX_GUIDE_DEPTH_LEVELS)
    assert parse_guided_decoding({"json_schema": json.dumps(allowed) if as_text else allowed}) is not None
    with pytest.raises(InvalidSchemaError, match="deep"):
        parse_guided_decoding({"json_schema": json.dumps(deep) if as_text else deep})


def test_a_hundred_thousand_brackets_are_refused_and_nothing_else_happens() -> None:
    with pytest.raises(InvalidSchemaError):
        parse_guided_decoding({"json_schema": '{"a":' * 20_000 + "1" + "}" * 20_000})
    with pytest.raises(InvalidSchemaError):
        parse_guided_decoding({"json_schema": "[" * 100_000})
