"""Progress: what a long step is doing, in a form that a terminal, a log or a status line can show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

BYTES_PER_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Progress:
    """``stage`` is one of ask, download, extract, wait, copy, lower, build, validate, hash, publish, verify, load.

    ``total_bytes`` 0 means not known.
    """

    stage: str
    message: str
    done_bytes: int = 0
    total_bytes: int = 0

    @property
    def fraction(self) -> float | None:
        return min(1.0, self.done_bytes / self.total_bytes) if self.total_bytes else None

    def __str__(self) -> str:
        if not self.total_bytes:
            return self.message
        done, total = (count / BYTES_PER_MEGABYTE for count in (self.done_bytes, self.total_bytes))
        return f"{self.message}: {done:.0f} of {total:.0f} MB"


ProgressCallback = Callable[[Progress], None]


def ignore_progress(progress: Progress) -> None:
    """For callers that do not watch."""
