"""The page at /docs: the OpenAPI document for people. One HTML text with no script and nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from edgellm.api.status_page import STYLE

_BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minItems": "at least {} entries",
    "maxItems": "at most {} entries",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
}


def docs_page(document: Mapping[str, Any]) -> str:
    """Every operation of an OpenAPI document, and every object that one takes or gives, each with its fields."""
    schemas: Mapping[str, Any] = document["components"]["schemas"]
    operations = [
        _operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    objects = [_object(name, schema) for name, schema in schemas.items()]
    title = f"{document['info']['title']} {document['info']['version']}"
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style><h1>{escape(title)}</h1>"
        f'<p>For programs: <a href="/openapi.json">/openapi.json</a>.</p>{"".join(operations)}'
        f"<h2>Objects</h2>{''.join(objects)}</html>"
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    lines = [operation.get("summary", "")]
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        lines.append(f"takes {_kind(body['schema'])}" + ("" if kind == "application/json" else f" as {escape(kind)}"))
    answers = operation["responses"]["200"]["content"]
    kinds = [
        _kind(answer["schema"]) if "$ref" in answer["schema"] else escape(kind) for kind, answer in answers.items()
    ]
    lines.append(f"answers {' or '.join(kinds)}")
    if "security" in operation:
        lines.append("needs a key where keys are set")
    return f"<h3><code>{method.upper()} {escape(path)}</code></h3><p>{'; '.join(lines)}.</p>"


def _object(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", [])
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code></td><td>{_kind(about)}</td>"
        f"<td>{_meaning(about, field in required)}</td></tr>"
        for field, about in schema.get("properties", {}).items()
    )
    return f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{_prose(schema)}</p><table>{rows}</table>'


def _kind(schema: Mapping[str, Any]) -> str:
    """A schema in words; other objects are links."""
    if "$ref" in schema:
        name = escape(str(schema["$ref"]).rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for alternatives in ("anyOf", "oneOf"):
        if alternatives in schema:
            return " or ".join(dict.fromkeys(_kind(one) for one in schema[alternatives]))
    if "enum" in schema or "const" in schema:
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in schema.get("enum", [schema.get("const")]))
    kind = escape(str(schema.get("type", "any value")))
    if kind == "array" and schema.get("items"):
        kind = f"array of {_kind(schema['items'])}"
    return ", ".join([kind, *_bounds(schema)])


def _bounds(schema: Mapping[str, Any]) -> Iterator[str]:
    for keyword, words in _BOUNDS.items():
        if keyword in schema:
            yield escape(words.format(schema[keyword]))


def _meaning(schema: Mapping[str, Any], required: bool) -> str:
    notes = ["required"] if required else []
    if schema.get("default") not in (None, [], {}):
        notes.append(f"default <code>{escape(str(schema['default']))}</code>")
    return ". ".join(filter(None, [", ".join(notes), _prose(schema)]))


def _prose(schema: Mapping[str, Any]) -> str:
    return escape(" ".join(str(schema.get("description", "")).replace("`", "").split()))
