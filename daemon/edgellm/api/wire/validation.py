"""Validation: a parsed body becomes a wire model, or one RequestError that names the place and the rule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from edgellm.api.wire.fields import (
    INVALID_VALUE,
    UNKNOWN_KIND,
    UNKNOWN_PARAMETER,
    UNSUPPORTED_MODALITY,
    UNSUPPORTED_PARAMETER,
    ParseContext,
    WireModel,
)
from edgellm.errors import RequestError, UnknownParameterError, UnsupportedModalityError, UnsupportedParameterError

Model = TypeVar("Model", bound=WireModel)

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TEXTS: Mapping[str, str] = {
    "missing": "is required",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be a string",
    "list_type": "must be an array",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "literal_error": "must be one of {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must match {pattern}",
}
_OWN_TYPES = frozenset({INVALID_VALUE, UNKNOWN_KIND, UNKNOWN_PARAMETER, UNSUPPORTED_PARAMETER, UNSUPPORTED_MODALITY})


def validated(model: type[Model], body: Mapping[str, object], context: ParseContext) -> Model:
    """Raises RequestError; its message is a fixed text for the rule, never the value."""
    try:
        return model.model_validate(body, context=context)
    except ValidationError as error:
        raise request_error(error.errors(include_url=False, include_input=False)[0]) from None


def request_error(details: ErrorDetails) -> RequestError:
    kind = details["type"]
    ctx = details.get("ctx", {})
    steps = [step for step in details["loc"] if not (isinstance(step, str) and step.startswith("("))]
    if kind in (INVALID_VALUE, UNKNOWN_PARAMETER, UNSUPPORTED_PARAMETER) and "name" in ctx:
        steps.append(str(ctx["name"]))
    elif kind == UNKNOWN_KIND:
        steps.append("type")
    text = details["msg"] if kind in _OWN_TYPES else _TEXTS.get(kind, "is not valid").format_map(ctx)
    if steps[-1:] == ["[key]"]:  # after the key itself, which a client chose
        steps, text = steps[:-2], f"holds a key that {text}"
    param = json_path(steps)
    message = f"{param or 'The body'} {text}."
    match kind:
        case "unknown_parameter":
            return UnknownParameterError(message, param=param)
        case "unsupported_parameter":
            return UnsupportedParameterError(message, param=param)
        case "unsupported_modality":
            return UnsupportedModalityError(message, param=param)
        case _:
            return RequestError(message, param=param)


def json_path(steps: list[int | str]) -> str | None:
    """``messages[2].content[0]``. A name that only a client can have chosen is cut down to a safe one."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += ("." if path else "") + (step if _PLAIN_NAME.fullmatch(step) else "?")
    return path or None
