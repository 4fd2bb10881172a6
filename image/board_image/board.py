"""Board: what is known of a kind of board, from image/boards/NAME.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgellm.errors import ConfigError

BOARDS = Path(__file__).resolve().parents[1] / "boards"


@dataclass(frozen=True, slots=True)
class Bsp:
    """NVIDIA's board support package that a board is flashed with. ``release`` is of nv_tegra_release: 39.2."""

    release: str
    config: str
    rootfs: str
    flash: tuple[str, ...]
    free_gb: float
    usb_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """``bsp`` is None for machines that are not flashed. ``sm`` is the GPU's compute capability."""

    name: str
    description: str
    architecture: str
    modules: tuple[str, ...]
    sm: int | None = None
    bsp: Bsp | None = None


def board_names(folder: Path = BOARDS) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.toml"))


def read_board(name: str, folder: Path = BOARDS) -> Board:
    """Raises ConfigError that names the file and the key."""
    path = folder / f"{name}.toml"
    if name not in board_names(folder):
        raise ConfigError(f"there is no board {name!r} — the boards are {', '.join(board_names(folder))}")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from None
    bsp_table = table.pop("bsp", None)
    keys = _Keys(path, table)
    board = Board(
        name,
        keys.text("description"),
        keys.text("architecture"),
        keys.texts("modules"),
        keys.number("sm") if "sm" in table else None,
        None if bsp_table is None else _bsp(path, bsp_table),
    )
    keys.refuse_others()
    return board


def _bsp(path: Path, table: Any) -> Bsp:
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: bsp is no table")
    keys = _Keys(path, table, "bsp.")
    bsp = Bsp(
        keys.text("release"),
        keys.text("config"),
        keys.text("rootfs"),
        keys.texts("flash"),
        float(keys.number("free_gb")),
        keys.texts("usb_ids"),
    )
    keys.refuse_others()
    return bsp


class _Keys:
    def __init__(self, path: Path, table: Mapping[str, Any], prefix: str = "") -> None:
        self._path, self._prefix, self._left = path, prefix, dict(table)

    def text(self, key: str) -> str:
        value = self._take(key)
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{self._path}: {self._prefix}{key} must be a text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._take(key)
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ConfigError(f"{self._path}: {self._prefix}{key} must be a list of texts")
        return tuple(value)

    def number(self, key: str) -> int:
        value = self._take(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(f"{self._path}: {self._prefix}{key} must be a whole number")
        return value

    def refuse_others(self) -> None:
        for key in self._left:
            raise ConfigError(f"{self._path}: {self._prefix}{key} is no key of a board")

    def _take(self, key: str) -> Any:
        if key not in self._left:
            raise ConfigError(f"{self._path}: {self._prefix}{key} is missing")
        return self._left.pop(key)
