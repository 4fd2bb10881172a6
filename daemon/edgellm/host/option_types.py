"""Types of command-line options, for argparse: numbers within bounds, and paths that say something."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def named_path(text: str) -> Path:
    """An empty text, as an unset variable of a script gives, would otherwise mean the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("an empty text names no file or folder")
    return Path(text)


def whole_number(of_what: str, least: int, most: int) -> Callable[[str], int]:
    """``of_what`` is for the message: "releases"."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no number of {of_what} from {least} to {most}")
        return int(text)

    return read


def duration(unit: str, most: float, least: float | None = None) -> Callable[[str], float]:
    """In ``unit``: "seconds". Without ``least`` anything above 0."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not (value > 0 if least is None else least <= value) or not value <= most:
            bounds = f"above 0, up to {most:g}" if least is None else f"from {least:g} to {most:g}"
            raise argparse.ArgumentTypeError(f"{text!r} is no time in {unit} {bounds}")
        return value

    return read
