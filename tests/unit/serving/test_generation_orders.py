"""Whatever happens in whatever order: slots are never oversold, every lease comes back, every request ends once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.serving.scripted_lane import ScriptedGeneration, ScriptedLane, settle, spec_of

from edgellm.errors import EdgeLLMError, WorkerFailedError
from edgellm.runtime.generation import GenerationRequest, TextPrompt
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.engine_client import EngineClient, GenerationJob
from edgellm.serving.generation import CancelCause, Generation
from edgellm.serving.settings import ServingSettings

EVENTS = st.one_of(
    st.tuples(st.just("arrive"), st.sampled_from("abc"), st.integers(1, 3)),
    st.tuples(st.sampled_from(["leave", "cancel", "say", "finish", "fail", "let go"]), st.integers(0, 30), st.just(0)),
    st.tuples(st.just("turns"), st.integers(0, 5), st.just(0)),
    st.tuples(st.sampled_from(["drain", "block", "unblock"]), st.just(0), st.just(0)),
)


class World:
    def __init__(self, capacity: int, queued: int, holds: bool) -> None:
        self.lane = ScriptedLane(max_batch_size=capacity)
        self.capacity = capacity
        self.engine = EngineClient([spec_of(self.lane)], ServingSettings(max_queued_requests=queued))
        self.holds = holds
        self.arrived: list[asyncio.Task[Any]] = []
        self.got: dict[int, Generation] = {}
        self.began = 0  # a task that is cancelled before its first turn never does
        self.may_accept = asyncio.Event()
        self.may_accept.set()

    async def _client(self, number: int, client: str, choices: int) -> None:
        self.began += 1
        request = GenerationRequest(TextPrompt("x"), SamplingParams())
        try:
            generation = await self.engine.generate(GenerationJob("tiny", [request], f"r{number}", client, choices))
            self.got[number] = generation
            while await generation.next_deltas():
                pass
        except EdgeLLMError:
            return

    def _open_generations(self) -> list[ScriptedGeneration]:
        return [generation for generation in self.lane.generations if not generation.ended]

    async def happen(self, event: tuple[Any, ...], draining: list[asyncio.Task[None]]) -> None:
        kind, argument, further = event
        match kind:
            case "arrive":
                number = len(self.arrived)
                self.arrived.append(asyncio.create_task(self._client(number, argument, further)))
            case "leave" if self.arrived:
                self.arrived[argument % len(self.arrived)].cancel()
            case "cancel" if self.got:
                list(self.got.values())[argument % len(self.got)].cancel(CancelCause.CLIENT_LEFT)
            case "say" | "finish" | "fail" if open_generations := self._open_generations():
                generation = open_generations[argument % len(open_generations)]
                if kind == "say":
                    generation.say("x")
                elif kind == "finish":
                    generation.finish()
                else:
                    generation.fail(WorkerFailedError("gone"))
            case "let go":
                held = [g for g in self.lane.generations if g.ended and not g.has_let_go]
                if held:
                    held[argument % len(held)].let_go()
            case "drain":
                draining.append(asyncio.create_task(self.engine.drain(600)))
            case "block":
                self.may_accept.clear()
            case "unblock":
                self.may_accept.set()
            case "turns":
                await settle(argument)
            case _:
                pass
        self.check()

    def check(self) -> None:
        gate = self.engine.model("tiny").admission
        assert self.lane.occupied <= gate.running <= self.capacity
        assert gate.waiting == 0 or gate.running == self.capacity

    async def end(self) -> None:
        """Everything left ends by itself: nobody needs to cancel for slots to come back."""
        self.lane.holds_slots = False
        self.may_accept.set()
        for _ in range(200):
            for generation in self.lane.generations:
                if not generation.ended:
                    generation.finish()
                generation.let_go()
            await settle(5)
            if all(task.done() for task in self.arrived) and self.engine.running_requests == 0:
                break


def outcome_counts(engine: EngineClient) -> Counter[str]:
    counts: Counter[str] = Counter()
    for family in engine.counters.registry.collect():
        for sample in family.samples:
            if sample.name == "edgellm_requests_total":
                counts[sample.labels["outcome"]] += int(sample.value)
    return counts


@settings(max_examples=150, deadline=None)
@given(
    events=st.lists(EVENTS, max_size=40),
    capacity=st.integers(1, 3),
    queued=st.integers(0, 3),
    holds=st.booleans(),
)
def test_every_order_of_events_ends_with_every_slot_free(
    events: list[tuple[Any, ...]], capacity: int, queued: int, holds: bool
) -> None:
    async def scenario() -> None:
        world = World(capacity, queued, holds)
        world.engine.start()
        await world.engine.opened()
        world.lane.holds_slots = holds
        world.lane.before_accepting = world.may_accept.wait  # type: ignore[assignment]
        draining: list[asyncio.Task[None]] = []
        for event in events:
            await world.happen(event, draining)
        await world.end()
        gate = world.engine.model("tiny").admission
        assert gate.running == gate.waiting == world.lane.occupied == world.engine.running_requests == 0
        assert all(task.done() for task in world.arrived)
        assert outcome_counts(world.engine).total() == world.began
        await asyncio.gather(*draining)
        await world.engine.close()
        assert world.lane.closed == 1

    asyncio.run(asyncio.wait_for(scenario(), 60))
