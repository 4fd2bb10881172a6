"""Writes a configuration as TOML: what edgellm_settings holds, as edgellm reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(values: Mapping[str, Any]) -> str:
    """Tables, lists of tables, texts, numbers, booleans and lists of them. What is null is left out: it is unset."""
    return "\n".join(_table(values, ())) + "\n"


def _table(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    rows = [(str(key), value) for key, value in values.items() if value is not None]
    for key, value in rows:
        if not isinstance(value, Mapping) and not _is_table_list(value):
            yield f"{_key(key)} = {_value(value, (*path, key))}"
    for key, value in rows:
        inner = (*path, key)
        if isinstance(value, Mapping):
            yield f"\n[{_dotted(inner)}]"
            yield from _table(value, inner)
        elif _is_table_list(value):
            for element in value:
                yield f"\n[[{_dotted(inner)}]]"
                yield from _table(element, inner)


def _is_table_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(element, Mapping) for element in value)


def _value(value: Any, path: tuple[str, ...]) -> str:
    """JSON writes texts, numbers, booleans and lists of them as TOML does."""
    elements = value if isinstance(value, list) else [value]
    for element in elements:
        if not isinstance(element, (str, int, float)):
            raise TypeError(f"edgellm_settings: {'.'.join(path)}: {element!r} has no place in a configuration")
    return json.dumps(value, ensure_ascii=False)


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(_key(part) for part in path)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)


class FilterModule:
    """How Ansible finds them."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"to_toml": to_toml}
