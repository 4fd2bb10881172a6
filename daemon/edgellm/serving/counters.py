"""Counters: what serving did, as Prometheus metrics in a registry of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from edgellm.serving.report import Outcome, RequestReport

if TYPE_CHECKING:
    from edgellm.serving.model import ServedModel

RECORD_RESULTS = ("written", "lost")
_SECONDS_OF_REQUESTS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_SECONDS_BETWEEN_TOKENS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1)


class Counters:
    """Labels are configured model names and fixed words only, so that clients cannot make new series."""

    def __init__(self, models: Mapping[str, ServedModel]) -> None:
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
        self._queue = histogram("queue_seconds", "Time from arrival in the queue to a slot.", _SECONDS_OF_REQUESTS)
        self._first_token = histogram(
            "time_to_first_token_seconds", "Time from arrival to the first token.", _SECONDS_OF_REQUESTS
        )
        self._token_gap = histogram("inter_token_seconds", "Time between tokens.", _SECONDS_BETWEEN_TOKENS)
        self._total = histogram("request_seconds", "Time from arrival to the end.", _SECONDS_OF_REQUESTS)
        self._records = counter("records", "Records of requests that were written or lost.", "result")
        for result in RECORD_RESULTS:
            self._records.labels(result)
        self.registry.register(_StateCollector(models))
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
        self._prompt_tokens.labels(report.model).inc(report.prompt_tokens)
        self._cached_tokens.labels(report.model).inc(report.cached_tokens)
        self._generated_tokens.labels(report.model).inc(report.generated_tokens)


class _StateCollector(Collector):
    """Reads what holds now at each scrape: admission, model states, and the lanes' own counters."""

    def __init__(self, models: Mapping[str, ServedModel]) -> None:
        self._models = models

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        running = GaugeMetricFamily("edgellm_running_sequences", "Sequences that hold a slot.", labels=["model"])
        waiting = GaugeMetricFamily("edgellm_waiting_requests", "Requests in the queue.", labels=["model"])
        slots = GaugeMetricFamily("edgellm_slots", "Sequences that can run at a time.", labels=["model"])
        lost = CounterMetricFamily("edgellm_lanes_lost", "Workers that were lost.", labels=["model"])
        ready = GaugeMetricFamily("edgellm_model_state", "1 for the state that holds.", labels=["model", "state"])
        executor = GaugeMetricFamily(
            "edgellm_model_executor", "1 for the executor that runs the model.", labels=["model", "executor", "device"]
        )
        for name, model in self._models.items():
            if model.capabilities is not None and model.capabilities.executor:
                chosen = [name, model.capabilities.executor, model.capabilities.executor_device]
                executor.add_metric(chosen, 1.0)
            lost.add_metric([name], model.lanes_lost_total)
            running.add_metric([name], model.admission.running)
            waiting.add_metric([name], model.admission.waiting)
            slots.add_metric([name], model.admission.capacity)
            for state in type(model.state):
                ready.add_metric([name, state.value], float(model.state is state))
        yield from (running, waiting, slots, lost, ready, executor)
        yield from self._lane_metrics()

    def _lane_metrics(self) -> Iterable[Metric]:
        scheduling = GaugeMetricFamily(
            "edgellm_lane_scheduling", "The runtime's scheduling counters.", labels=["model", "lane", "counter"]
        )
        cache = GaugeMetricFamily(
            "edgellm_lane_context_cache", "The runtime's context cache counters.", labels=["model", "lane", "counter"]
        )
        steps = GaugeMetricFamily("edgellm_lane_steps", "Steps the runtime completed.", labels=["model", "lane"])
        for name, model in self._models.items():
            for lane in model.lanes:
                counters = lane.counters()
                steps.add_metric([name, lane.name], counters.steps_completed)
                for family, values in ((scheduling, counters.scheduling), (cache, counters.context_cache)):
                    for counter, value in (values or {}).items():
                        family.add_metric([name, lane.name, counter], value)
        yield from (scheduling, cache, steps)
