"""Boards: where a client keeps the keys and authorities of the boards that it paired with, closed to other users."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgellm.config.load import default_files
from edgellm.durable_file import write_durably
from edgellm.errors import ConfigError
from edgellm.service.tls import AUTHORITY_FILE

FOLDER_NAME: Final = "boards"
KEY_FILE: Final = "api-key"
UNFINISHED_FILE: Final = "api-key.unfinished"
KEY_BYTES_MAX: Final = 4_096


@dataclass(frozen=True, slots=True)
class Board:
    """One board by the name and port that it was paired by."""

    folder: Path

    @classmethod
    def at(cls, host: str, port: int, environ: Mapping[str, str] | None = None) -> Board:
        personal, _ = default_files(environ)
        # An address of version 6 has colons, and may name an interface.
        name = "".join(char if char.isalnum() or char in ".-_" else "_" for char in host.lower())
        return cls(personal.parent / FOLDER_NAME / f"{name}_{port}")

    @property
    def key_file(self) -> Path:
        return self.folder / KEY_FILE

    @property
    def authority_file(self) -> Path:
        return self.folder / AUTHORITY_FILE

    @property
    def is_paired(self) -> bool:
        return os.path.isfile(self.key_file) and os.path.isfile(self.authority_file)

    def key(self) -> str:
        return _read(self.key_file)

    def unfinished_key(self) -> str | None:
        """The key of a pairing whose answer never came: the board may hold it already."""
        return _read(self.folder / UNFINISHED_FILE) if os.path.isfile(self.folder / UNFINISHED_FILE) else None

    def begin(self, key: str) -> None:
        """On disk before the board hears of it."""
        self._write(self.folder / UNFINISHED_FILE, key)

    def finish(self, key: str, authority: str) -> None:
        self._write(self.authority_file, authority)
        self._write(self.key_file, key)
        self.forget_unfinished()

    def forget_unfinished(self) -> None:
        (self.folder / UNFINISHED_FILE).unlink(missing_ok=True)

    def _write(self, path: Path, text: str) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_durably(path, text.encode())
        except OSError as error:
            raise ConfigError(
                f"{path}: {error.strerror} — set XDG_CONFIG_HOME to a folder that can be written"
            ) from None


def _read(path: Path) -> str:
    try:
        with path.open(encoding="ascii") as stream:
            return stream.read(KEY_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a key"
        raise ConfigError(f"{path}: {reason} — remove {path.parent} and pair again") from None
