"""RunLengths: how long slots will still be held, by what those that run may yet say and how fast they say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgellm.serving.service_times import WEIGHT_OF_NEWEST, ServiceTimes, within_bounds

# Gaps between tokens that tell a run's own pace: the first ones may hold another prompt's computing.
_GAPS_TO_TRUST = 8


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a slot is. ``decoding_seconds`` is from its run's first token to the last one that has come.

    ``following_tokens_max`` is what other runs of the same request may say in the slot after this one.
    """

    generated_tokens: int
    tokens_max: int
    decoding_seconds: float
    following_tokens_max: int = 0

    @property
    def gaps(self) -> int:
        return max(0, self.generated_tokens - 1)


class RunLengths:
    """Moving averages of the pace, and of which share of what they may say runs do say; at first they say it all.

    Of what a run may yet say it is expected to say the same share at every point. So the estimate is never more than
    what its limit allows, falls with each token, and reaches nothing no sooner than the limit.
    """

    def __init__(self) -> None:
        self._times = ServiceTimes()
        self._share: float | None = None
        self._gap_seconds: float | None = None

    def ended(self, held_seconds: float, progress: RunProgress | None = None) -> None:
        """Without a ``progress`` for what says no tokens."""
        self._times.ended(held_seconds)
        if progress is None or not progress.generated_tokens:
            return
        self._share = _moved(self._share, min(1.0, progress.generated_tokens / progress.tokens_max))
        if progress.gaps:
            self._gap_seconds = _moved(self._gap_seconds, progress.decoding_seconds / progress.gaps)

    def until_next_end_seconds(self, running: Sequence[tuple[float, RunProgress | None]]) -> float:
        """Estimated seconds until one of the slots is free, each held for so many seconds already."""
        return within_bounds(min((self._remaining_seconds(*one) for one in running), default=0.0))

    def _remaining_seconds(self, age_seconds: float, progress: RunProgress | None) -> float:
        gap_seconds = None if progress is None else self._pace(progress)
        if progress is None or gap_seconds is None:
            return self._times.remaining_seconds(age_seconds)
        tokens_left = max(0, progress.tokens_max - progress.generated_tokens) + progress.following_tokens_max
        return tokens_left * gap_seconds * (1.0 if self._share is None else self._share)

    def _pace(self, progress: RunProgress) -> float | None:
        if progress.gaps < _GAPS_TO_TRUST and self._gap_seconds is not None:
            return self._gap_seconds
        return progress.decoding_seconds / progress.gaps if progress.gaps else None


def _moved(mean: float | None, newest: float) -> float:
    return newest if mean is None else mean + WEIGHT_OF_NEWEST * (newest - mean)
