"""Random JSON schemas of the kinds that clients send, small enough that a small model can fill them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]

MOST_LEVELS = 3
WORDS = ("name", "age", "city", "tags", "score", "kind", "items", "note", "unit", "when")
PATTERNS = ("[a-z]{2,6}", "^[A-Z][a-z]{1,5}$", "^\\d{3}-\\d{2}$", "^(red|green|blue)$", "^x+y?$")
FORMATS = ("date", "time", "date-time", "uuid", "ipv4", "email", "hostname")


class SchemaMaker:
    """Makes the same schemas from the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._definitions: dict[str, Schema] = {}

    def schema(self) -> Schema:
        self._definitions = {}
        made = self._of_any_kind(0)
        if self._definitions:
            made = {**made, "$defs": self._definitions}
        return made

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _of_any_kind(self, level: int) -> Schema:
        leaves: list[Callable[[int], Schema]] = [
            self._string, self._number, self._integer, self._boolean, self._constant, self._enumeration, self._null,
        ]  # fmt: skip
        inner: list[Callable[[int], Schema]] = [
            self._object, self._object, self._array, self._tuple, self._any_of, self._one_of, self._all_of,
            self._reference, self._types,
        ]  # fmt: skip
        if level == 0:
            return self._random.choice(inner)(level)
        if level >= MOST_LEVELS:
            return self._random.choice(leaves)(level)
        return self._random.choice(leaves + inner)(level)

    def _object(self, level: int) -> Schema:
        names = self._random.sample(WORDS, self._random.randint(1, 3))
        made: Schema = {"type": "object", "properties": {name: self._of_any_kind(level + 1) for name in names}}
        required = [name for name in names if self._chance(0.7)]
        if required:
            made["required"] = required
        kind = self._random.random()
        if kind < 0.7:
            made["additionalProperties"] = False
        elif kind < 0.8:
            made["additionalProperties"] = {"type": "integer", "minimum": 0, "maximum": 99}
        elif kind < 0.9:
            made["patternProperties"] = {"^x_[a-z]{1,3}$": {"type": "boolean"}}
            made["additionalProperties"] = False
        return made

    def _array(self, level: int) -> Schema:
        made: Schema = {"type": "array", "items": self._of_any_kind(level + 1)}
        least = self._random.randint(0, 2)
        if least:
            made["minItems"] = least
        made["maxItems"] = least + self._random.randint(0, 2)
        return made

    def _tuple(self, level: int) -> Schema:
        parts = [self._of_any_kind(level + 1) for _ in range(self._random.randint(1, 2))]
        return {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts)}

    def _any_of(self, level: int) -> Schema:
        return {"anyOf": [self._of_any_kind(level + 1) for _ in range(2)]}

    def _one_of(self, level: int) -> Schema:
        return {"oneOf": [self._string(level), self._integer(level), {"type": "null"}]}

    def _all_of(self, level: int) -> Schema:
        return {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": self._random.randint(5, 400)}]}

    def _reference(self, level: int) -> Schema:
        name = f"part{len(self._definitions)}"
        self._definitions[name] = {}
        self._definitions[name] = self._of_any_kind(level + 1)
        return {"type": "object", "properties": {"part": {"$ref": f"#/$defs/{name}"}}, "required": ["part"],
                "additionalProperties": False}  # fmt: skip

    def _types(self, level: int) -> Schema:
        return {"type": self._random.sample(["integer", "boolean", "null"], 2)}

    def _string(self, level: int) -> Schema:
        kind = self._random.random()
        if kind < 0.25:
            return {"type": "string", "pattern": self._random.choice(PATTERNS)}
        if kind < 0.45:
            return {"type": "string", "format": self._random.choice(FORMATS)}
        made: Schema = {"type": "string", "maxLength": self._random.randint(3, 20)}
        if self._chance(0.5):
            made["minLength"] = self._random.randint(1, 3)
        return made

    def _number(self, level: int) -> Schema:
        low = self._random.randint(-50, 50)
        made: Schema = {"type": "number", "minimum": low, "maximum": low + self._random.randint(1, 100)}
        if self._chance(0.3):
            made = {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": low + 10}
        return made

    def _integer(self, level: int) -> Schema:
        low = self._random.randint(-20, 20)
        made: Schema = {"type": "integer", "minimum": low, "maximum": low + self._random.randint(12, 500)}
        if self._chance(0.3):
            made["multipleOf"] = self._random.choice((2, 5, 10))
        return made

    def _boolean(self, level: int) -> Schema:
        return {"type": "boolean"}

    def _null(self, level: int) -> Schema:
        return {"type": "null"}

    def _constant(self, level: int) -> Schema:
        return {"const": self._random.choice(["fixed", 7, None, True, {"a": [1]}])}

    def _enumeration(self, level: int) -> Schema:
        return {"enum": self._random.sample(["red", "green", 5, 2.5, None, False], 3)}
