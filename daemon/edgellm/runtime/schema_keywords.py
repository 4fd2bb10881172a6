"""Keywords of JSON Schema: what means nothing, and what a grammar engine would pass over, is refused by its path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgellm.errors import InvalidSchemaError
from edgellm.runtime.schema_numbers import refuse_inexact_values, safe_bound

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
# What no engine enforces. Ours refuses more, each with its path, where it compiles the schema.
UNENFORCED = frozenset({"uniqueItems", "contains", "minContains", "maxContains"})
# What TensorRT's engine passes over, by its own validation or without a word.
UNENFORCED_ON_TENSORRT = UNENFORCED | {
    *("multipleOf", "patternProperties", "propertyNames", "minProperties", "maxProperties"),
    *("not", "if", "then", "else", "dependencies", "dependentRequired", "dependentSchemas"),
    *("additionalItems", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"),
}
SHOWN_CHARACTERS_MAX = 64  # of a name that the client chose


def refuse_unknown_keywords(schema: Mapping[str, Any], param: str) -> None:
    """Raise InvalidSchemaError with the path of a name that is no keyword. The schema's depth is bounded before."""
    referenced: set[str] = set()  # names at the root that references go through: places to keep schemas in
    unknown: list[tuple[str, str]] = []
    for node, name, value, place in _entries(schema, param):
        if name == "$ref" and isinstance(value, str) and value.startswith("#/"):
            referenced.add(value[2:].partition("/")[0])
        elif name not in KEYWORDS and not name.startswith(EXTENSION_PREFIX):
            unknown.append((place, name if node is schema else ""))
    for place, name_at_root in unknown:
        if name_at_root not in referenced:
            raise InvalidSchemaError(f"{place} is no keyword of JSON Schema; leave it out", param=place)


def refuse_unenforced(schema: object, param: str, *, on_tensorrt: bool) -> None:
    """Raise InvalidSchemaError with the path of the first keyword that the runtime's engine would pass over."""
    unenforced = UNENFORCED_ON_TENSORRT if on_tensorrt else UNENFORCED
    for _, name, value, place in _entries(schema, param):
        if _asks_for_nothing(name, value):
            continue
        if name in unenforced:
            raise InvalidSchemaError(f"{place} cannot be enforced; leave it out", param=place)
        if not on_tensorrt:
            refuse_inexact_values(name, value, place)
            safe_bound(name, value, place)
            continue
        if name == "allOf" and isinstance(value, list) and len(value) > 1:
            raise InvalidSchemaError(f"{place} cannot be enforced with more than one schema", param=place)
        if name == "oneOf" and not _exclude_each_other(value):
            raise InvalidSchemaError(
                f"{place} cannot be enforced: its alternatives have neither different types nor a property with "
                "different constants; use anyOf",
                param=place,
            )


def fit_for_engine(schema: object, *, on_tensorrt: bool) -> bool:
    """Take out keywords whose value lets everything pass, which an engine may refuse by their name alone, and have
    bounds that no double is be the nearest within. False where nothing had to be changed.
    """
    changes: list[tuple[dict[str, Any], str, object]] = []
    for node, name, value, place in _entries(schema, ""):
        if not isinstance(node, dict):
            continue
        if _asks_for_nothing(name, value):
            changes.append((node, name, None))
        elif not on_tensorrt and (bound := safe_bound(name, value, place)) != value:
            changes.append((node, name, bound))
    for node, name, bound in changes:
        if bound is None:
            del node[name]
        else:
            node[name] = bound
    return bool(changes)


def _asks_for_nothing(name: str, value: object) -> bool:
    return name == "uniqueItems" and value is False


def _entries(schema: object, param: str) -> Iterator[tuple[Mapping[str, Any], str, Any, str]]:
    """Each entry of every schema within ``schema``: the schema it is in, its name, value and path."""
    waiting: list[tuple[object, str]] = [(schema, param)]
    while waiting:
        node, path = waiting.pop()
        if not isinstance(node, Mapping):
            continue
        for name, value in node.items():
            place = f"{path}.{name[:SHOWN_CHARACTERS_MAX]}"
            yield node, name, value, place
            if name in NAMED_SCHEMAS and isinstance(value, Mapping):
                waiting += [(one, f"{place}.{key[:SHOWN_CHARACTERS_MAX]}") for key, one in value.items()]
            elif name in SCHEMA_LISTS | SINGLE_SCHEMAS and isinstance(value, list):
                waiting += [(one, f"{place}[{index}]") for index, one in enumerate(value)]
            elif name in SINGLE_SCHEMAS:
                waiting.append((value, place))


def _exclude_each_other(alternatives: object) -> bool:
    """Whether they have different types, or are objects told apart by the constant of a required property."""
    if not isinstance(alternatives, Sequence) or not all(isinstance(one, Mapping) for one in alternatives):
        return False
    types = [one.get("type") for one in alternatives]
    if all(isinstance(one, str) for one in types) and len(set(types)) == len(types):
        return not {"integer", "number"} <= set(types)
    constants = [_required_constants(one) for one in alternatives]
    names = set.intersection(*(set(one) for one in constants)) if constants else set()
    return any(len({one[name] for one in constants}) == len(constants) for name in names)


def _required_constants(schema: Mapping[str, Any]) -> dict[str, str]:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        return {}
    return {
        name: rule["const"]
        for name, rule in properties.items()
        if name in required and isinstance(rule, Mapping) and isinstance(rule.get("const"), str)
    }
