"""Counters: what serving did, as Prometheus metrics in a registry of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram

from edgellm.serving.report import Outcome, RequestReport
from edgellm.serving.state_metrics import StateCollector

if TYPE_CHECKING:
    from edgellm.serving.model import ServedModel

RECORD_RESULTS = ("written", "lost")
_SECONDS_OF_REQUESTS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_SECONDS_BETWEEN_TOKENS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1)


class Counters:
    """Labels are configured model names and fixed words only, so that clients cannot make new series."""

    def __init__(self, models: Mapping[str, ServedModel], is_ready: Callable[[], bool]) -> None:
        self.registry = CollectorRegistry(auto_describe=True)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"edgellm_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"edgellm_{name}", text, ("model",), buckets=buckets, registry=self.registry)

        self._requests = counter("requests", "Requests that ended, by outcome.", "model", "outcome")
        self._prompt_tokens = counter("prompt_tokens", "Prompt tokens of requests that were served.", "model")
        self._cached_tokens = counter(
            "cached_prompt_tokens", "Prompt tokens that came from the context cache.", "model"
        )
        self._generated_tokens = counter("generated_tokens", "Generated tokens.", "model")
        self._media = counter("media", "Images, videos and sounds of requests that were served.", "model", "kind")
        self._queue = histogram("queue_seconds", "Time from arrival in the queue to a slot.", _SECONDS_OF_REQUESTS)
        self._first_token = histogram(
            "time_to_first_token_seconds", "Time from arrival to the first token.", _SECONDS_OF_REQUESTS
        )
        self._token_gap = histogram("inter_token_seconds", "Time between tokens.", _SECONDS_BETWEEN_TOKENS)
        self._prefill = histogram(
            "prefill_seconds", "Time from a lane getting a request to its first token.", _SECONDS_OF_REQUESTS
        )
        self._decode = histogram(
            "decode_seconds", "Time from the first token of a request to its last.", _SECONDS_OF_REQUESTS
        )
        self._total = histogram("request_seconds", "Time from arrival to the end.", _SECONDS_OF_REQUESTS)
        self._records = counter("records", "Records of requests that were written or lost.", "result")
        for result in RECORD_RESULTS:
            self._records.labels(result)
        self.registry.register(StateCollector(models, is_ready))
        self.expect(models)

    def expect(self, models: Iterable[str]) -> None:
        """Show their series from the start, at zero."""
        for name in models:
            for outcome in Outcome:
                self._requests.labels(name, outcome.value)

    def count_records(self, result: str, lines: int) -> None:
        """``result`` is one of RECORD_RESULTS. Thread-safe."""
        self._records.labels(result).inc(lines)

    def token_gap(self, model: str) -> Callable[[float], None]:
        observe: Callable[[float], None] = self._token_gap.labels(model).observe
        return observe

    def observe(self, report: RequestReport) -> None:
        """Count a request that has ended."""
        if report.outcome is None or report.ended_seconds is None:
            return
        self._requests.labels(report.model, report.outcome.value).inc()
        if report.granted_seconds is None or report.entered_queue_seconds is None:
            return
        self._queue.labels(report.model).observe(report.granted_seconds - report.entered_queue_seconds)
        self._total.labels(report.model).observe(report.ended_seconds - report.arrived_seconds)
        if report.first_token_seconds is not None:
            self._first_token.labels(report.model).observe(report.first_token_seconds - report.arrived_seconds)
            if report.submitted_seconds is not None:
                self._prefill.labels(report.model).observe(report.first_token_seconds - report.submitted_seconds)
            if report.last_token_seconds is not None:
                self._decode.labels(report.model).observe(report.last_token_seconds - report.first_token_seconds)
        self._prompt_tokens.labels(report.model).inc(report.prompt_tokens)
        self._cached_tokens.labels(report.model).inc(report.cached_tokens)
        self._generated_tokens.labels(report.model).inc(report.generated_tokens)
        for kind, count in report.media.items():
            self._media.labels(report.model, kind).inc(count)
