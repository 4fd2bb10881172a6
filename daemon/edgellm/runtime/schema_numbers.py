"""Numbers of JSON Schema that a grammar engine reads as doubles: refused, or rounded to the safe side."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from edgellm.errors import InvalidSchemaError

LOWER_BOUNDS: Final = frozenset({"minimum", "exclusiveMinimum"})
UPPER_BOUNDS: Final = frozenset({"maximum", "exclusiveMaximum"})
EXACT_VALUES: Final = frozenset({"const", "enum"})


def refuse_inexact_values(name: str, value: object, place: str) -> None:
    """Raise InvalidSchemaError for a value of ``const`` or ``enum`` that would be written as another number."""
    if name not in EXACT_VALUES:
        return
    for part in _parts(value):
        if not _is_number(part):
            continue
        nearest = _nearest_double(part)
        if nearest != part or math.isinf(nearest):
            raise InvalidSchemaError(
                f"{place} holds a number that no double is, such as one beyond 2^53, and would be written as another; "
                "use a string",
                param=place,
            )


def safe_bound(name: str, value: Any, place: str) -> Any:
    """``value``, or the nearest double within it where it is none: numbers that are let through satisfy both.

    Raises InvalidSchemaError for a bound beyond every double.
    """
    if not _is_number(value) or name not in LOWER_BOUNDS | UPPER_BOUNDS:
        return value
    nearest = _nearest_double(value)
    if math.isinf(nearest):
        raise InvalidSchemaError(f"{place} is beyond every double; leave it out", param=place)
    if nearest == value:
        return value
    if name in UPPER_BOUNDS and nearest > value:
        nearest = math.nextafter(nearest, -math.inf)
    elif name in LOWER_BOUNDS and nearest < value:
        nearest = math.nextafter(nearest, math.inf)
    return int(nearest)


def _parts(value: object) -> Iterator[object]:
    waiting = [value]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _nearest_double(value: Any) -> float:
    """Infinity, with its sign, for what is beyond every double."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
