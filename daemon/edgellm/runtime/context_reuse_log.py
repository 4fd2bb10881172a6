"""The one INFO line about context reuse that each text request on the blocking path leaves."""

from __future__ import annotations

import logging
import threading
from typing import Any

_log = logging.getLogger(__name__)


class ContextReuseLog:
    """Keeps the counters of the last line, so that a line shows what one request added and what holds so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reused_tokens = 0
        self._matched_tokens = 0
        self._hit_sequences = 0
        self._admitted_sequences = 0

    def record(self, metrics: Any, *, logs: bool = True) -> None:
        """Log one line for the request that just ended; ``metrics`` are the contract's cumulative ones.

        What a request did that leaves no line is not added to the next one.
        """
        with self._lock:
            reused = metrics.reused_tokens - self._reused_tokens
            matched = metrics.matched_tokens - self._matched_tokens
            hits = metrics.hit_sequences - self._hit_sequences
            admitted = metrics.admitted_sequences - self._admitted_sequences
            self._reused_tokens = metrics.reused_tokens
            self._matched_tokens = metrics.matched_tokens
            self._hit_sequences = metrics.hit_sequences
            self._admitted_sequences = metrics.admitted_sequences
        if not logs:
            return
        _log.info(
            "context reuse: request reused_tokens=%d matched_tokens=%d hits=%d/%d hit_rate=%.4f; "
            "total reused_tokens=%d matched_tokens=%d hits=%d/%d hit_rate=%.4f records=%d",
            reused,
            matched,
            hits,
            admitted,
            _hit_rate(hits, admitted),
            metrics.reused_tokens,
            metrics.matched_tokens,
            metrics.hit_sequences,
            metrics.admitted_sequences,
            _hit_rate(metrics.hit_sequences, metrics.admitted_sequences),
            metrics.current_records,
        )


def _hit_rate(hit_sequences: int, admitted_sequences: int) -> float:
    return hit_sequences / admitted_sequences if admitted_sequences else 0.0
