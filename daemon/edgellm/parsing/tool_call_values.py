"""What a model wrote as a call, checked and brought into form: a known tool's name and one JSON object."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgellm.parsing.answer_events import CallArguments, CallEnd, CallStart, ParserEvent

Schema = Mapping[str, Any]
Tools = Mapping[str, Schema]  # the parameters of each tool that may be called, by its name

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,300}")
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """``arguments`` is the text of a JSON object."""

    name: str
    arguments: str


class CallCounter:
    """Gives calls their ids and numbers. Beyond the first one it drops them where one call is all that is allowed."""

    def __init__(self, *, parallel: bool = True, new_id: Callable[[], str] | None = None) -> None:
        self._parallel = parallel
        self._new_id = new_id or new_call_id
        self.count = 0

    def events(self, calls: Iterable[ParsedCall]) -> list[ParserEvent]:
        events: list[ParserEvent] = []
        for call in calls:
            if self.count and not self._parallel:
                break
            index = self.count
            self.count += 1
            events += (
                CallStart(index, self._new_id(), call.name),
                CallArguments(index, call.arguments),
                CallEnd(index),
            )
        return events


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def calls_of_json(text: str, tools: Tools, name: str | None = None) -> list[ParsedCall]:
    """The calls that JSON text stands for; none when any part of it is no call of a known tool.

    With ``name`` the text is that tool's arguments. Otherwise it is a call, a list of calls, or an object that has
    them as tool_calls.
    """
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return []
    if name is not None:
        call = _call(name, value, tools)
        return [] if call is None else [call]
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    entries = value if isinstance(value, list) else [value]
    calls = [_call_of_object(entry, tools) for entry in entries]
    return [call for call in calls if call is not None] if all(calls) else []


def call_of_texts(name: str, values: Mapping[str, str], tools: Tools) -> ParsedCall | None:
    """The call whose arguments were written as plain texts; the tool's schema says what they mean."""
    if name not in tools:
        return None
    properties = tools[name].get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    return ParsedCall(name, _json_text({key: _typed(text, known.get(key)) for key, text in values.items()}))


def _call_of_object(entry: object, tools: Tools) -> ParsedCall | None:
    if not isinstance(entry, dict):
        return None
    function = entry["function"] if isinstance(entry.get("function"), dict) else entry
    name = function.get("name")
    arguments = function.get("arguments", function.get("parameters"))
    return _call(name, arguments, tools) if isinstance(name, str) else None


def _call(name: str, arguments: object, tools: Tools) -> ParsedCall | None:
    if name not in tools:
        return None
    if isinstance(arguments, str):
        if not arguments.strip():
            return ParsedCall(name, "{}")
        try:
            arguments = json.loads(arguments, strict=False)
        except (ValueError, RecursionError):
            return None
    if arguments is None:
        return ParsedCall(name, "{}")
    return ParsedCall(name, _json_text(arguments)) if isinstance(arguments, dict) else None


def _json_text(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # An escaped half of a surrogate pair is legal JSON and no legal text: it stays escaped.
    return json.dumps(value) if _LONE_SURROGATE.search(text) else text


def _typed(text: str, schema: object) -> Any:
    """A text stays one where the schema takes texts, or says nothing; else it is read as JSON where it is JSON."""
    types = _types(schema)
    if not types or ("string" in types and not (text == "null" and "null" in types)):
        return text
    bare = text.strip()
    if "boolean" in types and bare.lower() in ("true", "false"):
        return bare.lower() == "true"
    if "null" in types and bare.lower() in ("null", "none"):
        return None
    if "integer" in types and _WHOLE_NUMBER.fullmatch(bare):
        return int(bare)
    try:
        return json.loads(bare, strict=False, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _types(schema: object, depth: int = 0) -> set[str]:
    """The types that a schema names, also in its alternatives."""
    if not isinstance(schema, Mapping) or depth > 8:
        return set()
    named = schema.get("type")
    types = {named} if isinstance(named, str) else {one for one in named or () if isinstance(one, str)}
    if "enum" in schema and not types and isinstance(schema["enum"], list):
        types |= {"string" for value in schema["enum"] if isinstance(value, str)}
    for keyword in _ALTERNATIVES:
        options = schema.get(keyword)
        if isinstance(options, list):
            types |= {one for option in options for one in _types(option, depth + 1)}
    return types
