"""ServiceTimes: how long a slot was held lately, and so how soon one may become free."""

from __future__ import annotations

from collections.abc import Sequence

WEIGHT_OF_NEWEST = 0.2
_SHORTEST_SECONDS = 1.0
_LONGEST_SECONDS = 600.0


class ServiceTimes:
    """A moving average; before anything has ended, a request is expected to run as long again as it has run."""

    def __init__(self) -> None:
        self._mean_seconds: float | None = None

    def ended(self, held_seconds: float) -> None:
        if self._mean_seconds is None:
            self._mean_seconds = held_seconds
        else:
            self._mean_seconds += WEIGHT_OF_NEWEST * (held_seconds - self._mean_seconds)

    def until_next_end_seconds(self, ages_seconds: Sequence[float]) -> float:
        """Estimated seconds until one of the running requests ends, between 1 and 600."""
        return within_bounds(min((self.remaining_seconds(age) for age in ages_seconds), default=0.0))

    def remaining_seconds(self, age_seconds: float) -> float:
        """Of one request, unbounded."""
        if self._mean_seconds is None or age_seconds >= self._mean_seconds:
            return age_seconds
        return self._mean_seconds - age_seconds


def within_bounds(wait_seconds: float) -> float:
    """A wait that a client can be told: between 1 and 600."""
    return min(max(wait_seconds, _SHORTEST_SECONDS), _LONGEST_SECONDS)
