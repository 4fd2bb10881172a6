"""Reads the files of a board's tools, and names units."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

NO_MODE = -1
_MODE = re.compile(r"^\s*<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)", re.MULTILINE)


def power_mode_id(listed: str, wanted: str) -> int:
    """The number of the mode of that number or name in nvpmodel.conf; -1 where it has none."""
    for number, name in _MODE.findall(listed):
        if str(wanted).lower() in (number, name.lower()):
            return int(number)
    return NO_MODE


def systemd_path(path: str) -> str:
    """A path as the name of a unit has it: ``/var/a-b`` is ``var-a\\x2db``."""
    parts = [part for part in str(path).split("/") if part]
    return "-".join(_escaped(part) for part in parts) or "-"


def _escaped(part: str) -> str:
    text = "".join(char if re.match(r"[A-Za-z0-9:_.]", char) else _bytes(char) for char in part)
    return f"\\x2e{text[1:]}" if text.startswith(".") else text


def _bytes(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode())


class FilterModule:
    """How Ansible finds them."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"power_mode_id": power_mode_id, "systemd_path": systemd_path}
