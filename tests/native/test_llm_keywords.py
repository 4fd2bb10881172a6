"""Keywords of JSON Schema, one by one: enforced or refused by path, as the table of daemon/README.md says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llguidance
import pytest
from tests.models.real_model import CATALOGUE_NAME

from edgellm.errors import InvalidSchemaError
from edgellm.runtime.llm import LLM
from edgellm.runtime.sampling_params import SamplingParams

pytestmark = pytest.mark.model

README = Path(__file__).parents[2] / "daemon" / "README.md"


@dataclass(frozen=True)
class Enforced:
    """``schema`` lets ``good`` be written and ``bad`` not."""

    schema: Any
    good: Any
    bad: Any


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


ENFORCED: dict[str, Enforced] = {
    "type": Enforced({"type": "integer"}, 5, "5"),
    "type (list)": Enforced({"type": ["integer", "null"]}, None, True),
    "enum": Enforced({"enum": ["a", 5, None]}, 5, 6),
    "const": Enforced({"const": {"a": [1]}}, {"a": [1]}, {"a": [2]}),
    "properties": Enforced(_object(a={"type": "boolean"}), {"a": True}, {"a": 1}),
    "required": Enforced({**_object(a={"type": "null"}), "required": ["a"]}, {"a": None}, {}),
    "additionalProperties": Enforced(_object(a={}), {"a": 1}, {"b": 1}),
    "patternProperties": Enforced(
        {"type": "object", "patternProperties": {"^x_": {"type": "integer"}}, "additionalProperties": False},
        {"x_a": 1},
        {"x_a": "1"},
    ),
    "items": Enforced({"type": "array", "items": {"type": "integer"}}, [1, 2], [1, "2"]),
    "prefixItems": Enforced({"type": "array", "prefixItems": [{"const": 1}], "items": False}, [1], [2]),
    "minItems": Enforced({"type": "array", "items": {"const": 1}, "minItems": 2}, [1, 1], [1]),
    "maxItems": Enforced({"type": "array", "items": {"const": 1}, "maxItems": 1}, [1], [1, 1]),
    "minLength": Enforced({"type": "string", "minLength": 2}, "ab", "a"),
    "maxLength": Enforced({"type": "string", "maxLength": 2}, "éé", "abc"),
    "pattern": Enforced({"type": "string", "pattern": "^[a-c]+$"}, "abc", "abd"),
    "format": Enforced({"type": "string", "format": "date"}, "2026-11-29", "2026-13-29"),
    "minimum": Enforced({"type": "integer", "minimum": 7}, 7, 6),
    "maximum": Enforced({"type": "number", "maximum": 7.5}, 7.5, 7.6),
    "exclusiveMinimum": Enforced({"type": "integer", "exclusiveMinimum": 7}, 8, 7),
    "exclusiveMaximum": Enforced({"type": "number", "exclusiveMaximum": 7}, 6.9, 7),
    "multipleOf": Enforced({"type": "integer", "minimum": 0, "multipleOf": 5}, 15, 16),
    "anyOf": Enforced({"anyOf": [{"const": 1}, {"type": "boolean"}]}, True, 2),
    "oneOf": Enforced({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "a", None),
    "allOf": Enforced({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]}, 4, 6),
    "$ref, $defs": Enforced({"$ref": "#/$defs/a", "$defs": {"a": {"const": "x"}}}, "x", "y"),
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "not": ({"not": {"type": "string"}}, "not"),
    "if, then, else": ({"if": {}, "then": {}}, "if"),
    "dependentRequired": ({"dependentRequired": {"a": ["b"]}}, "dependentRequired"),
    "dependentSchemas": ({"dependentSchemas": {"a": {}}}, "dependentSchemas"),
    "propertyNames": ({"propertyNames": {"maxLength": 3}}, "propertyNames"),
    "uniqueItems": ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    "contains": ({"type": "array", "contains": {"const": 1}}, "contains"),
    "minContains, maxContains": ({"type": "array", "contains": {}, "minContains": 2}, "contains"),
    "unevaluatedProperties": ({"type": "object", "unevaluatedProperties": False}, "unevaluatedProperties"),
    "unevaluatedItems": ({"type": "array", "unevaluatedItems": False}, "unevaluatedItems"),
    "format (others)": ({"type": "string", "format": "iri"}, "format"),
    "$ref (elsewhere)": ({"$ref": "https://example.com/schema"}, "$ref"),
}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(CATALOGUE_NAME, max_kv_cache_capacity=256, max_input_len=128) as model:
        yield model


def _answer(llm: LLM, schema: Any, tokens: int) -> tuple[str, str | None]:
    guide = {"json_schema": json.dumps({"type": "object", "properties": {"v": schema}, "required": ["v"]})}
    if "$ref" in schema and "$defs" in schema:
        guide = {"json_schema": json.dumps(schema)}
    params = SamplingParams(temperature=1.0, seed=1, max_tokens=tokens, guided_decoding=guide)
    output = llm.generate("Give me v.", params)[0]
    return output.text, output.finish_reason


def _takes(schema: Any, value: Any) -> bool:
    """Whether the grammar of the schema lets this value be written to its end."""
    matcher = llguidance.LLMatcher(
        llguidance.LLTokenizer("byte"), llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
    )
    assert not matcher.get_error(), matcher.get_error()
    text = json.dumps(value, ensure_ascii=False)
    return bool(matcher.consume_tokens(list(text.encode()))) and matcher.is_accepting()


@pytest.mark.parametrize("keyword", ENFORCED)
def test_a_keyword_is_enforced(llm: LLM, keyword: str) -> None:
    case = ENFORCED[keyword]
    assert _takes(case.schema, case.good)
    assert not _takes(case.schema, case.bad)
    text, reason = _answer(llm, case.schema, tokens=24)
    assert text
    assert reason in ("stop", "length")


@pytest.mark.parametrize("keyword", REFUSED)
def test_a_keyword_is_refused_by_its_path(llm: LLM, keyword: str) -> None:
    schema, name = REFUSED[keyword]
    with pytest.raises(InvalidSchemaError) as refusal:
        _answer(llm, schema, tokens=1)
    path = f"guided_decoding.json_schema.properties.v.{name}"
    assert refusal.value.param == path
    assert str(refusal.value).startswith(path)
    assert name in str(refusal.value)


def test_alternatives_that_overlap_are_refused(llm: LLM) -> None:
    with pytest.raises(InvalidSchemaError) as refusal:
        _answer(llm, {"oneOf": [{"type": "integer"}, {"type": "number"}]}, tokens=1)
    assert (refusal.value.param or "").endswith(".v.oneOf")


def test_the_table_of_the_readme_lists_every_keyword() -> None:
    rows = re.findall(r"^\| `(.+?)` \| (enforced|refused)", README.read_text(), re.MULTILINE)
    told = {name: outcome for names, outcome in rows for name in names.split("`, `")}
    for keywords, outcome in ((ENFORCED, "enforced"), (REFUSED, "refused")):
        for keyword in keywords:
            for name in re.sub(r" \(.*\)", "", keyword).split(", "):
                if keyword not in ("format (others)", "$ref (elsewhere)"):
                    assert told.get(name) == outcome, name
