"""Keywords of JSON Schema: a name that means nothing would be passed over by every grammar engine, so it is refused.

Which of the known ones can be enforced is for the runtime to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgellm.errors import InvalidSchemaError

NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
SCHEMA_LISTS = frozenset({"prefixItems", "allOf", "anyOf", "oneOf"})
SINGLE_SCHEMAS = frozenset(
    {
        *("items", "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties"),
        *("not", "if", "then", "else", "contains", "propertyNames"),
    }
)
ASSERTIONS = frozenset(
    {
        *("type", "enum", "const", "format", "pattern", "minLength", "maxLength", "required", "dependencies"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "dependentRequired"),
        *("minItems", "maxItems", "uniqueItems", "minContains", "maxContains", "minProperties", "maxProperties"),
        *("$ref", "$dynamicRef", "$recursiveRef"),
    }
)
ANNOTATIONS = frozenset(
    {
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"),
        *("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary"),
        *("contentMediaType", "contentEncoding", "contentSchema"),
        # What OpenAPI and editors add to describe a value.
        *("example", "discriminator", "externalDocs", "xml", "enumNames", "enumDescriptions", "markdownDescription"),
    }
)
KEYWORDS = NAMED_SCHEMAS | SCHEMA_LISTS | SINGLE_SCHEMAS | ASSERTIONS | ANNOTATIONS
EXTENSION_PREFIX = "x-"
SHOWN_CHARACTERS_MAX = 64  # of a name that the client chose


def refuse_unknown_keywords(schema: Mapping[str, Any], param: str) -> None:
    """Raise InvalidSchemaError with the path of a name that is no keyword. The schema's depth is bounded before."""
    referenced: set[str] = set()  # names at the root that references go through: places to keep schemas in
    unknown: list[tuple[str, str]] = []
    waiting: list[tuple[object, str]] = [(schema, param)]
    while waiting:
        node, path = waiting.pop()
        if not isinstance(node, Mapping):
            continue
        for name, value in node.items():
            place = f"{path}.{name[:SHOWN_CHARACTERS_MAX]}"
            if name == "$ref" and isinstance(value, str) and value.startswith("#/"):
                referenced.add(value[2:].partition("/")[0])
            elif name in NAMED_SCHEMAS and isinstance(value, Mapping):
                waiting += [(one, f"{place}.{key[:SHOWN_CHARACTERS_MAX]}") for key, one in value.items()]
            elif name in SCHEMA_LISTS | SINGLE_SCHEMAS and isinstance(value, list):
                waiting += [(one, f"{place}[{index}]") for index, one in enumerate(value)]
            elif name in SINGLE_SCHEMAS:
                waiting.append((value, place))
            elif name not in KEYWORDS and not name.startswith(EXTENSION_PREFIX):
                unknown.append((place, name if node is schema else ""))
    for place, name_at_root in unknown:
        if name_at_root not in referenced:
            raise InvalidSchemaError(f"{place} is no keyword of JSON Schema; leave it out", param=place)
