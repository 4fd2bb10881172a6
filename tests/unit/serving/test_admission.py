"""Admission: capacity, queue, fairness, and leases that come back once."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.serving.scripted_lane import ScriptedLane, settle

from edgellm.errors import ServerBusyError, ShuttingDownError
from edgellm.serving.admission import (
    TRANSITIONS,
    Admission,
    AdmissionLogicError,
    Lease,
    Ticket,
    TicketEvent,
    TicketState,
)
from edgellm.serving.settings import ServingSettings


def admission(slots: int = 1, queued: int = 16, timeout_seconds: float = 600) -> Admission:
    made = Admission(ServingSettings(max_queued_requests=queued, queue_timeout_seconds=timeout_seconds))
    made.add_lane(ScriptedLane(), slots)
    return made


def test_a_free_slot_is_granted_at_once() -> None:
    assert admission().enter("a").state is TicketState.GRANTED


def test_beyond_capacity_requests_wait_in_order() -> None:
    gate = admission()
    first, second, third = (gate.enter("a") for _ in range(3))
    assert (second.state, third.state) == (TicketState.WAITING, TicketState.WAITING)
    first.leases[0].release()
    assert (second.state, third.state) == (TicketState.GRANTED, TicketState.WAITING)


def test_a_full_queue_refuses_with_a_time_to_come_back() -> None:
    gate = admission(queued=1)
    gate.enter("a")
    gate.enter("a")
    with pytest.raises(ServerBusyError) as refused:
        gate.enter("a")
    assert 1 <= refused.value.retry_after_seconds <= 600


def test_without_a_queue_a_busy_model_refuses_at_once() -> None:
    gate = admission(queued=0)
    gate.enter("a")
    with pytest.raises(ServerBusyError):
        gate.enter("b")


def test_clients_take_turns_however_many_requests_one_of_them_queued() -> None:
    gate = admission()
    running = gate.enter("busy")
    many = [gate.enter("busy") for _ in range(3)]
    one = gate.enter("quiet")
    served = []
    for _ in range(4):
        running.leases[0].release()
        running = next(t for t in (*many, one) if t.state is TicketState.GRANTED and t not in served)
        served.append(running)
    assert served == [many[0], one, many[1], many[2]]


def test_a_request_for_several_slots_takes_what_is_free() -> None:
    gate = admission(slots=3)
    gate.enter("a")
    assert len(gate.enter("b", wanted_slots=8).leases) == 2


def test_lanes_fill_evenly() -> None:
    gate = admission(slots=2)
    other = ScriptedLane()
    gate.add_lane(other, 2)
    lanes = [gate.enter("a").leases[0].lane for _ in range(4)]
    assert lanes.count(other) == 2
    assert lanes[0] is not lanes[1]


def test_a_lease_released_twice_is_a_bug() -> None:
    gate = admission()
    lease = gate.enter("a").leases[0]
    lease.release()
    with pytest.raises(AdmissionLogicError):
        lease.release()
    assert gate.running == 0


def test_a_lane_that_leaves_gets_nothing_more_and_its_leases_still_come_back() -> None:
    gate = admission()
    ticket = gate.enter("a")
    gate.remove_lane(ticket.leases[0].lane)
    waiting = gate.enter("b")
    ticket.leases[0].release()
    assert (gate.running, gate.capacity, waiting.state) == (0, 0, TicketState.WAITING)


def test_closing_turns_away_who_waits_and_lets_run_what_runs() -> None:
    gate = admission()
    running, waiting = gate.enter("a"), gate.enter("a")
    gate.close(lambda: ShuttingDownError("closing"))
    assert (running.state, waiting.state) == (TicketState.GRANTED, TicketState.TURNED_AWAY)
    with pytest.raises(ShuttingDownError):
        gate.enter("a")
    running.leases[0].release()
    assert gate.running == 0


def test_acquire_times_out_in_the_queue() -> None:
    async def scenario() -> None:
        gate = admission(timeout_seconds=0.01)
        await gate.acquire("a")
        with pytest.raises(ServerBusyError):
            await gate.acquire("a")
        assert gate.waiting == 0

    asyncio.run(scenario())


def test_a_cancelled_waiter_leaves_the_queue() -> None:
    async def scenario() -> None:
        gate = admission()
        [lease] = await gate.acquire("a")
        waiter = asyncio.create_task(gate.acquire("a"))
        await settle()
        waiter.cancel()
        await settle()
        assert gate.waiting == 0
        lease.release()
        assert gate.running == 0

    asyncio.run(scenario())


def test_a_grant_that_meets_a_cancellation_is_given_back() -> None:
    async def scenario() -> None:
        gate = admission()
        [lease] = await gate.acquire("a")
        waiter = asyncio.create_task(gate.acquire("a"))
        await settle()
        lease.release()  # grants the waiter, which has not run yet
        assert gate.running == 1
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert gate.running == 0

    asyncio.run(scenario())


def test_every_event_outside_the_table_is_refused() -> None:
    for state in TicketState:
        for event in TicketEvent:
            ticket = Ticket("a", 1, 0.0)
            ticket.state = state
            if (state, event) in TRANSITIONS:
                ticket.apply(event)
                assert ticket.state is TRANSITIONS[state, event]
            else:
                with pytest.raises(AdmissionLogicError):
                    ticket.apply(event)


class AdmissionMachine(RuleBasedStateMachine):
    """Any order of arrivals, ends, timeouts, departures and a shutdown."""

    @initialize(slots=st.lists(st.integers(1, 3), min_size=1, max_size=2), queued=st.integers(0, 4))
    def open(self, slots: list[int], queued: int) -> None:
        self.now = 0.0
        self.gate = Admission(ServingSettings(max_queued_requests=queued), clock=lambda: self.now)
        self.queued = queued
        self.closed = False
        for count in slots:
            self.gate.add_lane(ScriptedLane(), count)
        self.capacity = sum(slots)
        self.held: list[Lease] = []
        self.known: list[Ticket] = []

    def _collect(self) -> None:
        for ticket in self.known:
            for lease in ticket.leases:
                if lease not in self.held and not lease._released:
                    self.held.append(lease)

    @rule(client=st.sampled_from("abc"), wanted=st.integers(1, 4), seconds=st.floats(0, 5))
    def arrive(self, client: str, wanted: int, seconds: float) -> None:
        self.now += seconds
        had_room = len(self.held) < self.capacity or self.gate.waiting < self.queued
        try:
            self.known.append(self.gate.enter(client, wanted))
        except ShuttingDownError:
            assert self.closed
        except ServerBusyError:
            assert not had_room
            assert 1 <= self.gate.retry_after_seconds() <= 600
        else:
            assert had_room
            assert not self.closed
        self._collect()

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.held:
            lease = data.draw(st.sampled_from(self.held))
            self.held.remove(lease)
            lease.release()
            self._collect()

    @rule(data=st.data(), leaves=st.booleans())
    def stop_waiting(self, data: st.DataObject, leaves: bool) -> None:
        waiting = [ticket for ticket in self.known if ticket.state is TicketState.WAITING]
        if waiting:
            ticket = data.draw(st.sampled_from(waiting))
            (self.gate.abandon if leaves else self.gate.time_out)(ticket)

    @rule()
    def close(self) -> None:
        self.closed = True
        self.gate.close(lambda: ShuttingDownError("closing"))

    @invariant()
    def slots_are_never_oversold(self) -> None:
        assert self.gate.running == len(self.held) <= self.capacity

    @invariant()
    def nobody_waits_beside_a_free_slot(self) -> None:
        waiting = [ticket for ticket in self.known if ticket.state is TicketState.WAITING]
        assert self.gate.waiting == len(waiting) <= self.queued
        assert not waiting or len(self.held) == self.capacity

    @invariant()
    def a_granted_ticket_holds_between_one_slot_and_what_it_wanted(self) -> None:
        for ticket in self.known:
            if ticket.state is TicketState.GRANTED:
                assert 1 <= len(ticket.leases) <= ticket.wanted_slots
                assert ticket.outstanding >= 1
            if ticket.state is TicketState.RELEASED:
                assert ticket.outstanding == 0
            if ticket.state not in (TicketState.GRANTED, TicketState.RELEASED):
                assert not ticket.leases

    def teardown(self) -> None:
        while self.held:
            self.held.pop().release()
            self._collect()
        assert self.gate.running == self.gate.waiting == 0


TestAdmissionMachine = AdmissionMachine.TestCase
TestAdmissionMachine.settings = settings(deadline=None)
