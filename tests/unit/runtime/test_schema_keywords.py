"""Names that are no keywords, and keywords that an engine would pass over, are refused by their path."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from edgellm.errors import InvalidSchemaError
from edgellm.runtime.guided_decoding import guided_schemas, parse_guided_decoding
from edgellm.runtime.schema_keywords import (
    KEYWORDS,
    UNENFORCED,
    UNENFORCED_ON_TENSORRT,
    fit_for_engine,
    refuse_unenforced,
    refuse_unknown_keywords,
)
from edgellm.runtime.schema_numbers import LOWER_BOUNDS, UPPER_BOUNDS

PARAM = "guided_decoding.json_schema"


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "string", "minlength": 3}, "minlength"),
        ({"type": "object", "properties": {"a": {"maximun": 3}}}, "properties.a.maximun"),
        ({"items": {"anyOf": [{"type": "null"}, {"nullable": True}]}}, "items.anyOf[1].nullable"),
        ({"items": [{"kind": "x"}]}, "items[0].kind"),
        ({"$defs": {"n": {"additionalProperties": {"optional": True}}}}, "$defs.n.additionalProperties.optional"),
        ({"properties": {"a": {"components": {}, "$ref": "#/components/x"}}}, "properties.a.components"),
        ({"propertyOrdering": ["a"]}, "propertyOrdering"),
        ({"": 1}, ""),
    ],
)
def test_a_name_that_means_nothing_is_refused_by_its_path(schema: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidSchemaError, match="is no keyword of JSON Schema") as refusal:
        parse_guided_decoding({"json_schema": schema})
    assert refusal.value.param == f"{PARAM}.{path}"


@pytest.mark.parametrize(
    "schema",
    [
        {name: {} for name in KEYWORDS},
        {"properties": {"minlength": {"type": "string"}, "$weird": True}, "required": ["minlength"]},
        {"x-order": 1, "items": {"x-anything": {"foo": 1}}},
        {"enum": [{"foo": 1}], "const": {"bar": 2}, "default": {"baz": 3}, "examples": [{"qux": 4}]},
        {"components": {"schemas": {"A": {"type": "null"}}}, "items": {"$ref": "#/components/schemas/A"}},
        {"discriminator": {"propertyName": "kind", "mapping": {}}, "oneOf": []},
        {"dependencies": {"a": ["b"]}},
    ],
    ids=lambda schema: "+".join(sorted(schema))[:30],
)
def test_keywords_names_of_properties_values_and_extensions_pass(schema: dict[str, Any]) -> None:
    refuse_unknown_keywords(schema, PARAM)


def test_what_pydantic_makes_of_models_passes() -> None:
    class Cat(BaseModel):
        kind: str = Field(pattern="cat", examples=["cat"], description="which")
        lives: int = Field(default=9, ge=1, lt=10, deprecated=True)

    class Owner(BaseModel):
        cats: list[Cat] = Field(max_length=3)
        tags: dict[str, float | None] = {}
        pair: tuple[int, str] = (1, "a")

    refuse_unknown_keywords(Owner.model_json_schema(), PARAM)


def test_a_structural_tag_is_no_schema() -> None:
    assert parse_guided_decoding({"structural_tag": {"type": "structural_tag", "format": {}}}) is not None


@pytest.mark.parametrize("keyword", sorted(UNENFORCED_ON_TENSORRT))
def test_a_keyword_that_an_engine_passes_over_is_refused_by_its_path(keyword: str) -> None:
    schema = {"properties": {keyword: {"type": "string"}, "a": {"items": [{keyword: {}}]}}, "default": {keyword: 1}}
    with pytest.raises(InvalidSchemaError) as refusal:
        refuse_unenforced(schema, PARAM, on_tensorrt=True)
    assert refusal.value.param == f"{PARAM}.properties.a.items[0].{keyword}"
    if keyword not in UNENFORCED:  # what our own engine cannot do, it refuses itself
        refuse_unenforced(schema, PARAM, on_tensorrt=False)


def _kind(name: str, **rules: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"kind": {"const": name}}, "required": ["kind"], **rules}


@pytest.mark.parametrize(
    ("schema", "enforced"),
    [
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, True),
        ({"oneOf": [_kind("a"), _kind("b")]}, True),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, False),
        ({"oneOf": [_kind("a"), _kind("a")]}, False),
        ({"oneOf": [_kind("a"), _kind("b", required=[])]}, False),
        ({"oneOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}, False),
        ({"oneOf": 3}, False),
        ({"allOf": [{"type": "string"}]}, True),
        ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, False),
    ],
)
def test_alternatives_and_parts_that_tensorrt_cannot_tell_apart_are_refused(
    schema: dict[str, Any], enforced: bool
) -> None:
    refuse_unenforced(schema, PARAM, on_tensorrt=False)
    if enforced:
        refuse_unenforced(schema, PARAM, on_tensorrt=True)
        return
    with pytest.raises(InvalidSchemaError) as refusal:
        refuse_unenforced(schema, PARAM, on_tensorrt=True)
    assert refusal.value.param == f"{PARAM}.{next(iter(schema))}"


def test_the_schemas_of_a_structural_tag_are_found_with_their_paths() -> None:
    tag = {
        "type": "structural_tag",
        "structures": [{"begin": "<a>", "schema": {"uniqueItems": True}, "end": "</a>"}],
        "format": {"type": "or", "elements": [{"type": "json_schema", "json_schema": {"json_schema": {}}}]},
    }
    guide = parse_guided_decoding({"structural_tag": tag})
    assert guide is not None
    assert {path: schema for schema, path in guided_schemas(guide)} == {
        "guided_decoding.structural_tag.structures[0].schema": {"uniqueItems": True},
        "guided_decoding.structural_tag.format.elements[0].json_schema": {"json_schema": {}},
    }


@pytest.mark.parametrize(
    "value",
    [2**53 + 1, -(2**53) - 1, 1234567890123456789, 12345678901234567890123, [1, {"id": [2**53 + 1]}], 10**400, 1e400],
)
@pytest.mark.parametrize("keyword", ["const", "enum"])
def test_a_value_that_would_be_written_as_another_number_is_refused(keyword: str, value: Any) -> None:
    schema = {"properties": {"id": {keyword: [value] if keyword == "enum" else value}}}
    with pytest.raises(InvalidSchemaError, match="another; use a string") as refusal:
        refuse_unenforced(schema, PARAM, on_tensorrt=False)
    assert refusal.value.param == f"{PARAM}.properties.id.{keyword}"


@pytest.mark.parametrize("value", [0, True, 2**53, -(2**53), 2**60, 0.1, 1e300, 2**53 + 2])
def test_a_value_that_a_double_holds_is_taken(value: Any) -> None:
    schema = {"const": value, "enum": [value, {"a": value}], "minimum": value, "exclusiveMaximum": value}
    refuse_unenforced(schema, PARAM, on_tensorrt=False)
    assert not fit_for_engine(schema, on_tensorrt=False)


@given(st.integers(-(2**70), 2**70), st.sampled_from(sorted(LOWER_BOUNDS | UPPER_BOUNDS)))
def test_a_bound_is_never_wider_than_it_was(bound: int, keyword: str) -> None:
    schema: dict[str, Any] = {"items": {keyword: bound}}
    fit_for_engine(schema, on_tensorrt=False)
    used = schema["items"][keyword]
    assert int(float(used)) == used
    assert used <= bound if keyword in UPPER_BOUNDS else used >= bound
    assert abs(used - bound) <= 2 ** max(0, bound.bit_length() - 53)


def test_a_bound_beyond_every_double_is_refused() -> None:
    with pytest.raises(InvalidSchemaError, match=r"properties\.a\.maximum is beyond every double"):
        refuse_unenforced({"properties": {"a": {"maximum": 10**400}}}, "schema", on_tensorrt=False)
