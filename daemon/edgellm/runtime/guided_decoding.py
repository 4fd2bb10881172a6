"""GuidedDecoding: what constrains one text, checked for shape, size and depth before a runtime sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from edgellm.errors import InvalidSchemaError, RequestError
from edgellm.runtime.schema_keywords import fit_for_engine, refuse_unknown_keywords

GUIDE_TYPES = ("json_object", "json_schema", "regex", "ebnf", "structural_tag", "choice")
MAX_GUIDE_BYTES = 131_072
MAX_GUIDE_DEPTH_LEVELS = 64

_PARAM = "guided_decoding"


@dataclass(frozen=True, slots=True)
class GuidedDecoding:
    """``type`` is one of GUIDE_TYPES; ``guide`` its text: JSON for json_schema, structural_tag and choice."""

    type: str
    guide: str = ""

    def __post_init__(self) -> None:
        if self.type not in GUIDE_TYPES:
            raise RequestError(f"{_PARAM} type must be one of {', '.join(GUIDE_TYPES)}", param=_PARAM)
        param = f"{_PARAM}.{self.type}"
        if not isinstance(self.guide, str):
            raise RequestError(f"{param} must be a string here", param=param)
        _check_size(self.guide, param)
        if self.type == "json_object":
            if self.guide:
                raise RequestError(f"{param} takes no guide text", param=param)
        elif not self.guide:
            raise RequestError(f"{param} must not be empty", param=param)
        elif self.type == "choice":
            _check_choices(_parse_json(self.guide, param), param)
        elif self.type in ("json_schema", "structural_tag"):
            value = _parse_json(self.guide, param)
            if not isinstance(value, dict):
                raise InvalidSchemaError(f"{param} must be a JSON object", param=param)
            if self.type == "json_schema":
                refuse_unknown_keywords(value, param)


def guided_schemas(guide: GuidedDecoding) -> Iterator[tuple[object, str]]:
    """Each JSON schema of a guide, with its path."""
    param = f"{_PARAM}.{guide.type}"
    if guide.type == "json_schema":
        yield json.loads(guide.guide), param
    elif guide.type == "structural_tag":
        yield from _schemas_of_tag(json.loads(guide.guide), param)


def guide_for_engine(guide: GuidedDecoding, *, on_tensorrt: bool) -> GuidedDecoding:
    """The same guide, where need be in words that the engine of a runtime takes."""
    if guide.type not in ("json_schema", "structural_tag"):
        return guide
    value = json.loads(guide.guide)
    schemas = [value] if guide.type == "json_schema" else [schema for schema, _ in _schemas_of_tag(value, "")]
    changed = [fit_for_engine(schema, on_tensorrt=on_tensorrt) for schema in schemas]
    if not any(changed):
        return guide
    return GuidedDecoding(guide.type, json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _schemas_of_tag(node: object, path: str) -> Iterator[tuple[object, str]]:
    if isinstance(node, dict):
        for name, value in node.items():
            place = f"{path}.{name}"
            is_schema = name == "json_schema" or (name == "schema" and "begin" in node)
            yield from [(value, place)] if is_schema else _schemas_of_tag(value, place)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _schemas_of_tag(value, f"{path}[{index}]")


def parse_guided_decoding(value: object) -> GuidedDecoding | None:
    """Take a GuidedDecoding, a ``(type, guide)`` pair, ``{"type", "guide"}``, or one mode by name as over HTTP.

    None, and a mapping whose every mode is null, empty or false, ask for nothing.
    """
    if value is None or isinstance(value, GuidedDecoding):
        return value
    if isinstance(value, tuple):
        if len(value) != 2:
            raise RequestError(f"{_PARAM} as a tuple must be (type, guide)", param=_PARAM)
        return GuidedDecoding(*value)
    if not isinstance(value, Mapping):
        raise RequestError(f"{_PARAM} must be an object that names one of {', '.join(GUIDE_TYPES)}", param=_PARAM)
    if value.keys() <= {"type", "guide"} and "type" in value:
        return GuidedDecoding(value["type"], value.get("guide", ""))
    return _from_modes(value)


def _from_modes(modes: Mapping[str, object]) -> GuidedDecoding | None:
    unknown = [name for name in modes if name not in GUIDE_TYPES]
    if unknown:
        raise RequestError(
            f"{_PARAM} has no mode {str(unknown[0])[:64]!r}; it takes one of {', '.join(GUIDE_TYPES)}", param=_PARAM
        )
    asked = [name for name, guide in modes.items() if not _asks_for_nothing(name, guide)]
    if not asked:
        return None
    if len(asked) > 1:
        raise RequestError(f"{_PARAM} takes one mode, and has {' and '.join(sorted(asked))}", param=_PARAM)
    name = asked[0]
    return GuidedDecoding(name, _guide_text(name, modes[name]))


def _asks_for_nothing(name: str, guide: object) -> bool:
    if guide is None or (isinstance(guide, (str, list, tuple)) and not guide):
        return True
    return name == "json_object" and guide is False


def _guide_text(name: str, guide: object) -> str:
    param = f"{_PARAM}.{name}"
    if name == "json_object":
        if guide is not True:
            raise RequestError(f"{param} must be true or false", param=param)
        return ""
    if name in ("regex", "ebnf"):
        if not isinstance(guide, str):
            raise RequestError(f"{param} must be a string", param=param)
        return guide
    if name == "choice":
        if isinstance(guide, str) or not isinstance(guide, Sequence):
            raise RequestError(f"{param} must be an array of strings", param=param)
        _check_choices(guide, param)
        return json.dumps(list(guide), ensure_ascii=False)
    if isinstance(guide, str):
        return guide
    if not isinstance(guide, Mapping):
        raise RequestError(f"{param} must be an object, or a string that holds one", param=param)
    _check_depth(guide, param)
    try:
        return json.dumps(guide, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidSchemaError(f"{param} holds a value that JSON cannot express", param=param) from error


def _check_size(guide: str, param: str) -> None:
    try:
        size_bytes = len(guide.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise RequestError(f"{param} must be valid Unicode text", param=param) from error
    if size_bytes > MAX_GUIDE_BYTES:
        raise InvalidSchemaError(f"{param} has {size_bytes} bytes; the limit is {MAX_GUIDE_BYTES}", param=param)


def _check_choices(choices: Any, param: str) -> None:
    if not isinstance(choices, Sequence) or isinstance(choices, str) or not choices:
        raise RequestError(f"{param} must be a non-empty array of strings", param=param)
    if not all(isinstance(choice, str) for choice in choices):
        raise RequestError(f"{param} must hold strings only", param=param)


def _parse_json(text: str, param: str) -> Any:
    def refuse_constant(name: str) -> NoReturn:
        raise ValueError(name)

    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except RecursionError as error:
        raise _too_deep(param) from error
    except ValueError as error:
        raise InvalidSchemaError(f"{param} is not valid JSON", param=param) from error
    _check_depth(value, param)
    return value


def _check_depth(value: object, param: str) -> None:
    level: list[object] = [value]
    for _ in range(MAX_GUIDE_DEPTH_LEVELS):
        deeper: list[object] = []
        for node in level:
            if isinstance(node, Mapping):
                deeper.extend(node.values())
            elif isinstance(node, (list, tuple)):
                deeper.extend(node)
        if not deeper:
            return
        level = deeper
    raise _too_deep(param)


def _too_deep(param: str) -> InvalidSchemaError:
    return InvalidSchemaError(f"{param} is nested more than {MAX_GUIDE_DEPTH_LEVELS} levels deep", param=param)
