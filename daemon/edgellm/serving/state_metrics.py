"""StateCollector: what holds at the moment of a scrape: models, queues, lanes, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from edgellm.engines.resources.available_memory import available_memory_bytes
from edgellm.runtime.process_memory import resident_memory

if TYPE_CHECKING:
    from edgellm.serving.model import ServedModel


class StateCollector(Collector):
    """Reads admission, model states, and the lanes' own counters, at each scrape."""

    def __init__(self, models: Mapping[str, ServedModel], is_ready: Callable[[], bool]) -> None:
        self._models = models
        self._is_ready = is_ready

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(
            "edgellm_ready", "1 while every required model can take a request.", float(self._is_ready())
        )
        yield from self._model_metrics()
        yield from self._lane_metrics()
        yield from self._memory_metrics()

    def _model_metrics(self) -> Iterable[Metric]:
        running = GaugeMetricFamily("edgellm_running_sequences", "Sequences that hold a slot.", labels=["model"])
        waiting = GaugeMetricFamily("edgellm_waiting_requests", "Requests in the queue.", labels=["model"])
        slots = GaugeMetricFamily("edgellm_slots", "Sequences that can run at a time.", labels=["model"])
        active = GaugeMetricFamily("edgellm_lanes_active", "Replicas that can take a request.", labels=["model"])
        busy = GaugeMetricFamily("edgellm_lanes_busy", "Replicas that run a sequence.", labels=["model"])
        lost = CounterMetricFamily("edgellm_lanes_lost", "Workers that were lost.", labels=["model"])
        restarted = CounterMetricFamily(
            "edgellm_lanes_restarted", "Workers that took a lost one's place.", labels=["model"]
        )
        loads = CounterMetricFamily("edgellm_model_loads", "Times the model was loaded.", labels=["model"])
        swaps = CounterMetricFamily(
            "edgellm_model_swaps", "Times the model was unloaded to make room for another.", labels=["model"]
        )
        memory = GaugeMetricFamily(
            "edgellm_model_memory_bytes",
            "Memory the model takes at most when it is loaded: estimated, or measured where that was more.",
            labels=["model"],
        )
        state = GaugeMetricFamily("edgellm_model_state", "1 for the state that holds.", labels=["model", "state"])
        executor = GaugeMetricFamily(
            "edgellm_model_executor", "1 for the executor that runs the model.", labels=["model", "executor", "device"]
        )
        for name, model in self._models.items():
            if model.capabilities is not None and model.capabilities.executor:
                chosen = [name, model.capabilities.executor, model.capabilities.executor_device]
                executor.add_metric(chosen, 1.0)
            active.add_metric([name], len(model.lanes))
            busy.add_metric([name], model.admission.busy_lanes)
            lost.add_metric([name], model.lanes_lost_total)
            restarted.add_metric([name], model.lanes_restarted_total)
            loads.add_metric([name], model.openings_total)
            swaps.add_metric([name], model.swaps_total)
            if model.memory_bytes is not None:
                memory.add_metric([name], model.memory_bytes)
            running.add_metric([name], model.admission.running)
            waiting.add_metric([name], model.admission.waiting)
            slots.add_metric([name], model.admission.capacity)
            for each in type(model.state):
                state.add_metric([name, each.value], float(model.state is each))
        yield from (running, waiting, slots, active, busy, lost, restarted, loads, swaps, memory, state, executor)

    def _lane_metrics(self) -> Iterable[Metric]:
        scheduling = GaugeMetricFamily(
            "edgellm_lane_scheduling", "The runtime's scheduling counters.", labels=["model", "lane", "counter"]
        )
        cache = GaugeMetricFamily(
            "edgellm_lane_context_cache", "The runtime's context cache counters.", labels=["model", "lane", "counter"]
        )
        media = GaugeMetricFamily(
            "edgellm_lane_media", "Images the runtime encoded, and their tokens.", labels=["model", "lane", "counter"]
        )
        steps = GaugeMetricFamily("edgellm_lane_steps", "Steps the runtime completed.", labels=["model", "lane"])
        memory = GaugeMetricFamily(
            "edgellm_worker_memory_bytes", "Resident memory of a worker.", labels=["model", "lane"]
        )
        for name, model in self._models.items():
            for lane in model.lanes:
                counters = lane.counters()
                steps.add_metric([name, lane.name], counters.steps_completed)
                if counters.resident_bytes is not None:
                    memory.add_metric([name, lane.name], counters.resident_bytes)
                of_the_runtime = (
                    (scheduling, counters.scheduling),
                    (cache, counters.context_cache),
                    (media, counters.media),
                )
                for family, values in of_the_runtime:
                    for counter, value in (values or {}).items():
                        family.add_metric([name, lane.name, counter], value)
        yield from (scheduling, cache, media, steps, memory)

    def _memory_metrics(self) -> Iterable[Metric]:
        own, available = resident_memory(), available_memory_bytes()
        yield GaugeMetricFamily(
            "edgellm_front_end_memory_bytes",
            "Resident memory of the daemon without its workers.",
            None if own is None else own.total_bytes,
        )
        yield GaugeMetricFamily(
            "edgellm_available_memory_bytes",
            "What this machine and the cgroups above the daemon leave.",
            available,
        )
