"""Medians and spread of values that were measured in rounds, and of ratios taken within each round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of all rounds with the lowest and highest."""

    median: float
    lowest: float
    highest: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values), len(values))

    def text(self, digits: int) -> str:
        return f"{self.median:.{digits}f} ({self.lowest:.{digits}f} to {self.highest:.{digits}f})"


def ratio_by_round(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Ratios of neighbours in time, so that a slow spell of a shared machine falls on both sides."""
    return Spread.of([a / b for a, b in zip(ours, theirs, strict=True)])
