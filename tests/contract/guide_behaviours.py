"""Guides: what is refused before a runtime sees it."""

from __future__ import annotations

from typing import Any

from tests.contract.behaviours import Behaviours

GUIDES = Behaviours()

MAX_GUIDE_BYTES = 131_072


def _guide_verdict(rt: Any, kind: str, guide: str) -> tuple[bool, str]:
    verdict: tuple[bool, str] = rt.validate_guided_decoding_params(
        params=rt.GuidedDecodingParams(getattr(rt.GuideType, kind.upper()), guide)
    )
    return verdict


@GUIDES
def a_sound_guide_passes(rt: Any) -> None:
    sound = [
        ("json_object", ""),
        ("json_schema", '{"type": "object", "properties": {"a": {"type": "integer"}}}'),
        ("json_schema", "true"),
        ("json_schema", " [ ] "),
        ("json_schema", '{"not": {}, "if": {}, "oneOf": [], "$ref": "#/nowhere"}'),
        ("json_schema", '{"format": "date", "minProperties": 1}'),
        ("json_schema", '{"const": "\\ud83d\\ude42\\u0041", "minimum": -0.5e+3}'),
        ("regex", "[0-9]+"),
        ("ebnf", 'root ::= "a"'),
        ("structural_tag", "{}"),
        ("choice", '["a", ""]'),
    ]
    for kind, guide in sound:
        assert _guide_verdict(rt, kind, guide) == (True, ""), (kind, guide)


@GUIDES
def syntax_of_regex_and_ebnf_is_left_to_the_runtime(rt: Any) -> None:
    assert _guide_verdict(rt, "regex", "[0-9") == (True, "")
    assert _guide_verdict(rt, "ebnf", "no grammar") == (True, "")


@GUIDES
def a_guide_that_is_no_json_is_refused(rt: Any) -> None:
    for kind in ("json_schema", "structural_tag", "choice"):
        for guide in ("{", "[1,]", '{"a": 1,}', "{} {}", "{'a': 1}", '{"a": NaN}', "// {}", "01", '"\\ud800"', '"\n"'):
            valid, reason = _guide_verdict(rt, kind, guide)
            assert not valid, (kind, guide)
            assert f"guided_decoding.{kind}" in reason


@GUIDES
def keywords_that_no_grammar_enforces_are_refused_by_name(rt: Any) -> None:
    for keyword in ("uniqueItems", "contains", "minContains", "maxContains"):
        for schema in (
            f'{{"{keyword}": 1}}',
            f'{{"properties": {{"a": {{"items": [{{"{keyword}": false}}]}}}}}}',
            f'{{"anyOf": [{{"$defs": {{"a": {{"{keyword}": {{}}}}}}}}]}}',
            f'{{"properties": {{"properties": {{"{keyword}": 1}}}}}}',
        ):
            valid, reason = _guide_verdict(rt, "json_schema", schema)
            assert not valid, schema
            assert f"'{keyword}'" in reason


@GUIDES
def a_property_may_be_named_like_a_keyword(rt: Any) -> None:
    for names in ("properties", "$defs", "definitions", "dependentSchemas"):
        assert _guide_verdict(rt, "json_schema", f'{{"{names}": {{"contains": {{"type": "integer"}}}}}}')[0], names


@GUIDES
def an_empty_guide_is_refused(rt: Any) -> None:
    for kind in ("json_schema", "regex", "ebnf", "structural_tag", "choice"):
        valid, reason = _guide_verdict(rt, kind, "")
        assert not valid
        assert f"guided_decoding.{kind}" in reason


@GUIDES
def choices_are_a_list_of_strings(rt: Any) -> None:
    for guide in ("[]", '["a", 1]', '{"a": 1}', '"a"', '[["a"]]', "[null]", '["a", {}]'):
        valid, reason = _guide_verdict(rt, "choice", guide)
        assert not valid, guide
        assert "guided_decoding.choice" in reason


@GUIDES
def an_oversized_guide_is_refused(rt: Any) -> None:
    padding = "x" * (MAX_GUIDE_BYTES - len('""'))
    assert _guide_verdict(rt, "json_schema", f'"{padding}"') == (True, "")
    for kind in ("json_object", "json_schema", "regex", "ebnf", "structural_tag", "choice"):
        valid, reason = _guide_verdict(rt, kind, f'"{padding}x"')
        assert not valid
        assert f"guided_decoding.{kind} is too large" in reason


@GUIDES
def a_deep_guide_does_not_harm(rt: Any) -> None:
    depth = 5_000
    assert _guide_verdict(rt, "json_schema", '{"a":' * depth + "1" + "}" * depth)[0]
    assert not _guide_verdict(rt, "choice", "[" * depth + "]" * depth)[0]
