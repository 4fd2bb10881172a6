"""Names that are no keywords are refused by their path; everything that JSON Schema knows is left to the runtime."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field

from edgellm.errors import InvalidSchemaError
from edgellm.runtime.guided_decoding import parse_guided_decoding
from edgellm.runtime.schema_keywords import KEYWORDS, refuse_unknown_keywords

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
    ids=lambda schema: "+".join(schema)[:30],
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
