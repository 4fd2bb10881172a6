"""In which line of a TOML file a key stands: the parser of the standard library keeps none."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgellm.config.environment import KeyPath

STATEMENT_LINES_MAX = 1_000  # each line more is one parse more


def line_of(text: str, path: KeyPath) -> int | None:
    """Of the key, or of the table that lacks it; counted from 1. ``text`` is valid TOML. None where neither stands in
    it, and where a value before it has more lines than are looked through."""
    lines = _lines_of_keys(text)
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path)


def _lines_of_keys(text: str) -> Mapping[KeyPath, int]:
    found: dict[KeyPath, int] = {}
    last_index: dict[KeyPath, int] = {}  # of each array of tables
    table: KeyPath = ()
    written = text.split("\n")  # as TOML counts them: other ends of lines may stand in a text
    for number, tree in _statements(written):
        if written[number - 1].lstrip().startswith("["):
            table = _table_of(tree, last_index)
            tree = {}
        for path in (table, *_paths(tree, table)):
            for length in range(1, len(path) + 1):
                found.setdefault(path[:length], number)
    return found


def _statements(lines: Sequence[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """First line and content of each header and each assignment, up to one that is too long to be looked through."""
    start = 0
    while start < len(lines):
        for end in range(start + 1, min(len(lines), start + STATEMENT_LINES_MAX) + 1):
            try:
                tree = tomllib.loads("\n".join(lines[start:end]))
            except tomllib.TOMLDecodeError:
                continue  # it goes on in the next line
            if tree:
                yield start + 1, tree
            break
        else:
            return
        start = end


def _table_of(tree: Mapping[str, Any], last_index: dict[KeyPath, int]) -> KeyPath:
    """Where a header leads to: ``[models.sampling]`` is of the last ``[[models]]``."""
    path: KeyPath = ()
    below: Any = tree
    while below:
        if isinstance(below, list):
            last_index[path] = last_index.get(path, -1) + 1
            return (*path, last_index[path])
        if path in last_index:
            path = (*path, last_index[path])
        ((key, below),) = below.items()
        path = (*path, key)
    return path


def _paths(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from _paths(item, (*path, key))
