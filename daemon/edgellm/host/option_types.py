"""Types of command-line options that are numbers within bounds, for argparse."""

from __future__ import annotations

import argparse
from collections.abc import Callable


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
