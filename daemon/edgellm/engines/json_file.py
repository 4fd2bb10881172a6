"""JSON files of checkpoints: bounded in size, objects only, errors that name the file and the field."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from edgellm.config.regular_file import open_regular
from edgellm.errors import CheckpointError

MAX_JSON_BYTES = 256 << 20  # the largest published tokenizer.json files have tens of megabytes
MAX_COUNT = (1 << 31) - 1


def read_text_file(path: Path, most_bytes: int = MAX_JSON_BYTES) -> str:
    """The whole file as UTF-8 text. Raises CheckpointError."""
    try:
        with open_regular(path) as stream:
            # The size bounds the buffer, which is made before anything is read.
            size_bytes = os.fstat(stream.fileno()).st_size
            content = stream.read(min(size_bytes, most_bytes) + 1)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    if len(content) > most_bytes:
        raise CheckpointError(f"{path}: over {most_bytes} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise CheckpointError(f"{path}: not UTF-8") from None


def parse_object(path: Path, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: not a JSON object")
    return value


def read_object(path: Path, most_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    return parse_object(path, read_text_file(path, most_bytes))


class Fields:
    """Typed access to one JSON object; an absent or null field is absent."""

    def __init__(self, path: Path, values: Mapping[str, Any], prefix: str = "") -> None:
        self.path = path
        self.values = values
        self._prefix = prefix

    def fail(self, name: str, reason: str) -> NoReturn:
        raise CheckpointError(f"{self.path}: {self._prefix}{name} {reason}")

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def count(self, name: str, default: int | None = None) -> int:
        """A positive integer."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if value is None:
            self.fail(name, "is missing")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_COUNT:
            self.fail(name, "is not a positive number")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A positive, finite number."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if value is None:
            self.fail(name, "is missing")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
            self.fail(name, "is not a positive number")
        return float(value)

    def flag(self, name: str) -> bool | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            self.fail(name, "is neither true nor false")
        return value

    def text(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            self.fail(name, "is not a text")
        return value

    def mapping(self, name: str) -> Mapping[str, Any]:
        value = self.values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.fail(name, "is not an object")
        return value

    def token_ids(self, name: str, vocab_size: int) -> tuple[int, ...]:
        """One id or a list of ids."""
        value = self.values.get(name)
        ids = [] if value is None else value if isinstance(value, list) else [value]
        for token_id in ids:
            if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < vocab_size:
                self.fail(name, f"is no token id of the {vocab_size} of this model")
        return tuple(ids)
