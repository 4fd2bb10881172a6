"""Admission and generations as one state machine: every order of every event, against what must hold after each.

A request arrives, is granted, waits, times out, is cancelled or revoked; its lane refuses it, lets it run, is lost or
comes back; the server drains. Time is the test's own. What must hold: no slot is idle while somebody waits, none is
given out twice, and each request ends exactly once with all its slots back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.serving.scripted_lane import ScriptedGeneration, ScriptedLane, spec_of

from edgellm.errors import EdgeLLMError, RequestError, WorkerFailedError
from edgellm.runtime.generation import GenerationRequest, TextPrompt
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.engine_client import EngineClient, GenerationJob
from edgellm.serving.generation import CancelCause, Generation
from edgellm.serving.priority import Priority
from edgellm.serving.report import RequestReport
from edgellm.serving.settings import ServingSettings

QUEUE_TIMEOUT_SECONDS = 10.0
REQUEST_TIMEOUT_SECONDS = 25.0
CLIENTS = st.sampled_from("abc")
ANY_OF_THEM = st.integers(0, 63)
# What ends much at once comes seldom, so that there is something left to end.
SELDOM = st.sampled_from([False] * 7 + [True])
OFTEN = st.sampled_from([True] * 7 + [False])


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Its clock goes only when it is told to."""

    now_seconds = 0.0

    def time(self) -> float:
        return self.now_seconds


class BlockableLane(ScriptedLane):
    """Answers a submit when it may; one that is lost ends whatever it had, as a dead worker does."""

    def __init__(self, slots: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(max_batch_size=slots)
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.is_lost = False
        self.before_accepting = self._wait

    async def _wait(self) -> None:
        await self.may_answer.wait()

    def lose(self) -> None:
        self.is_lost = True
        self.refusal = WorkerFailedError("gone")
        self.may_answer.set()
        for generation in self.generations:
            if not generation.has_let_go:
                if not generation.ended:
                    generation._error = WorkerFailedError("gone")
                    generation.ended = True
                generation.let_go()


class ServingMachine(RuleBasedStateMachine):
    @initialize(
        slots=st.lists(st.integers(1, 2), min_size=1, max_size=2), queued=st.integers(0, 3), holds=st.booleans()
    )
    def open(self, slots: list[int], queued: int, holds: bool) -> None:
        self.loop = VirtualTimeLoop()
        self.surprises: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.surprises.append(context))
        self.slots = slots[0]
        self.queued = queued
        self.holds = holds
        self.lanes = [self._new_lane(count) for count in slots]
        self.engine = EngineClient(
            [spec_of(*self.lanes)],
            ServingSettings(
                max_queued_requests=queued,
                queue_timeout_seconds=QUEUE_TIMEOUT_SECONDS,
                request_timeout_seconds=REQUEST_TIMEOUT_SECONDS,
                priority_grants_ahead_max=2,
            ),
        )
        self.reports: Counter[str] = Counter()
        observe = self.engine.counters.observe

        def observed(report: RequestReport) -> None:
            assert report.outcome is not None
            assert report.ended_seconds is not None
            self.reports[report.request_id] += 1
            observe(report)

        self.engine.counters.observe = observed  # type: ignore[method-assign]
        self.model = self.engine.model("tiny")
        self.gate = self.model.admission
        self.tasks: list[asyncio.Task[None]] = []
        self.began = 0
        self.got: list[Generation] = []
        self.draining: list[asyncio.Task[None]] = []
        self.coming_back = 0

        async def start() -> None:
            self.engine.start()
            await self.engine.opened()

        self.loop.run_until_complete(start())
        for lane in self.lanes:
            lane.holds_slots = holds

    def _new_lane(self, slots: int) -> BlockableLane:
        return BlockableLane(slots, self.loop)

    def _turn(self, turns: int = 1) -> None:
        """Exactly so many turns of the loop: what a turn makes due runs in the next."""
        for _ in range(turns):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    def _of_lanes(self, wanted: str) -> list[ScriptedGeneration]:
        every = [generation for lane in self.lanes for generation in lane.generations]
        if wanted == "open":
            return [generation for generation in every if not generation.ended]
        return [generation for generation in every if generation.ended and not generation.has_let_go]

    # Clients

    @rule(
        clients=st.lists(CLIENTS, min_size=1, max_size=4),
        choices=st.sampled_from([1, 1, 2, 3]),
        priority=st.sampled_from(Priority),
        turns=st.sampled_from([8, 8, 1, 0]),
    )
    def arrive(self, clients: list[str], choices: int, priority: Priority, turns: int) -> None:
        for client in clients:
            self.tasks.append(self.loop.create_task(self._request(len(self.tasks), client, choices, priority)))
        self._turn(turns)

    async def _request(self, number: int, client: str, choices: int, priority: Priority) -> None:
        self.began += 1
        request = GenerationRequest(TextPrompt("x"), SamplingParams())
        job = GenerationJob("tiny", [request], f"r{number}", client, choices, priority=priority)
        with suppress(EdgeLLMError):
            generation = await self.engine.generate(job)
            self.got.append(generation)
            while await generation.next_deltas():
                pass

    def _unfinished(self) -> list[asyncio.Task[None]]:
        return [task for task in self.tasks if not task.done()]

    @precondition(lambda self: self._unfinished())
    @rule(which=ANY_OF_THEM)
    def leave(self, which: int) -> None:
        unfinished = self._unfinished()
        unfinished[which % len(unfinished)].cancel()

    @precondition(lambda self: self.gate.waiting)
    @rule(turns=st.integers(0, 3))
    def leave_as_slots_come_free(self, turns: int) -> None:
        """Grants and departures in one turn of the loop, whichever come first."""
        for lane in self.lanes:
            for generation in lane.generations:
                if not generation.ended:
                    generation.finish()
                generation.let_go()
        self._turn(turns)
        for task in self.tasks:
            task.cancel()

    @precondition(lambda self: self.got)
    @rule(which=ANY_OF_THEM, cause=st.sampled_from(CancelCause))
    def cancel(self, which: int, cause: CancelCause) -> None:
        self.got[which % len(self.got)].cancel(cause)

    @rule(client=CLIENTS, really=SELDOM)
    def revoke(self, client: str, really: bool) -> None:
        if really:
            self.engine.end_client(client)

    # Time, and the event loop's own pace

    @rule(turns=st.integers(1, 12))
    def turn(self, turns: int) -> None:
        self._turn(turns)

    @precondition(lambda self: self.gate.running)
    @rule(seconds=st.sampled_from([1.0] * 6 + [QUEUE_TIMEOUT_SECONDS + 1, REQUEST_TIMEOUT_SECONDS + 1]))
    def let_time_pass(self, seconds: float) -> None:
        self.loop.now_seconds += seconds
        self._turn(2)

    # Lanes

    @precondition(lambda self: self._of_lanes("open"))
    @rule(which=ANY_OF_THEM, end=st.sampled_from(["say", "finish", "fail", "refuse it"]))
    def speak(self, which: int, end: str) -> None:
        generations = self._of_lanes("open")
        generation = generations[which % len(generations)]
        if end == "say":
            generation.say("x")
        elif end == "finish":
            generation.finish()
        elif end == "fail":
            generation.fail(WorkerFailedError("gone"))
        else:
            generation.fail(RequestError("no"))

    @precondition(lambda self: self._of_lanes("held"))
    @rule(which=ANY_OF_THEM)
    def let_go(self, which: int) -> None:
        generations = self._of_lanes("held")
        generations[which % len(generations)].let_go()

    @rule(which=ANY_OF_THEM, may_answer=OFTEN)
    def block(self, which: int, may_answer: bool) -> None:
        lane = self.lanes[which % len(self.lanes)]
        if may_answer or lane.is_lost:
            lane.may_answer.set()
        else:
            lane.may_answer.clear()

    @rule(which=ANY_OF_THEM, is_coming_back=OFTEN, really=SELDOM)
    def lose_a_lane(self, which: int, is_coming_back: bool, really: bool) -> None:
        alive = [lane for lane in self.lanes if not lane.is_lost]
        if alive and really:
            lane = alive[which % len(alive)]
            self.model.lane_lost(lane, is_coming_back=is_coming_back)
            self.coming_back += is_coming_back
            lane.lose()

    @precondition(lambda self: self.coming_back)
    @rule(is_back=OFTEN)
    def replace_a_lane(self, is_back: bool) -> None:
        self.coming_back -= 1
        if not is_back:
            self.model.lane_given_up()
            return
        lane = self._new_lane(self.slots)
        lane.holds_slots = self.holds
        self.lanes.append(lane)
        self.model.lane_back(lane)

    # The server

    @rule(really=SELDOM)
    def drain(self, really: bool) -> None:
        if really and self.gate.waiting:
            self.draining.append(self.loop.create_task(self.engine.drain(1000)))

    # What must hold

    @invariant()
    def no_slot_is_idle_while_somebody_waits(self) -> None:
        free = sum(slots - self.gate._running[lane] for lane, slots in self.gate._capacity.items())
        assert self.gate.waiting == 0 or free <= 0

    @invariant()
    def no_slot_is_given_out_twice(self) -> None:
        for lane, slots in self.gate._capacity.items():
            assert 0 <= self.gate._running[lane] <= slots
        for lane in self.lanes:
            assert lane.occupied <= self.gate._running.get(lane, 0)
        assert self.gate.running == sum(self.gate._running.values())

    @invariant()
    def nothing_went_wrong_unheard(self) -> None:
        assert not self.surprises
        for task in self.tasks:
            if task.done() and not task.cancelled():
                assert task.exception() is None

    @invariant()
    def no_request_ended_twice(self) -> None:
        assert not self.reports or max(self.reports.values()) == 1

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        try:
            self._end()
        finally:
            self.loop.close()

    def _end(self) -> None:
        """Everything that is left ends by itself, and lanes that were to come back do."""
        while self.coming_back:
            self.replace_a_lane(is_back=True)
        for _ in range(400):
            for lane in self.lanes:
                lane.holds_slots = False
                lane.may_answer.set()
                for generation in lane.generations:
                    if not generation.ended:
                        generation.finish()
                    generation.let_go()
            self._turn(5)
            self.no_slot_is_idle_while_somebody_waits()
            if all(task.done() for task in self.tasks) and not self.engine.running_requests:
                break
        assert self.gate.running == self.gate.waiting == self.engine.running_requests == 0
        assert sum(lane.occupied for lane in self.lanes) == 0
        assert all(task.done() for task in self.tasks)
        assert self.reports.total() == self.began
        self.nothing_went_wrong_unheard()
        self.no_request_ended_twice()
        self.loop.run_until_complete(self.engine.close())
        for draining in self.draining:
            self.loop.run_until_complete(draining)
        assert self.gate._running == dict.fromkeys(self.gate._capacity, 0)


TestServingMachine = ServingMachine.TestCase
TestServingMachine.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
