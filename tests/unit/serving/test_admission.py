"""Admission: capacity, queue, fairness, and leases that come back once."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.serving.scripted_lane import ScriptedLane, settle

from edgellm.errors import ServerBusyError, ShuttingDownError
from edgellm.serving.admission import (
    TRANSITIONS,
    Admission,
    AdmissionLogicError,
    Ticket,
    TicketEvent,
    TicketState,
)
from edgellm.serving.priority import Priority
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


def waiting(gate: Admission, client: str, priority: Priority = Priority.NORMAL) -> Ticket:
    ticket = gate.enter(client, priority=priority)
    assert ticket.state is TicketState.WAITING
    return ticket


def order_of(running: Ticket, tickets: dict[str, Ticket]) -> list[str]:
    """Who is granted, one after the other, as the one slot comes free."""
    order: list[str] = []
    while True:
        running.leases[0].release()
        granted = [name for name, ticket in tickets.items() if ticket.state is TicketState.GRANTED]
        if not granted:
            return order
        running = tickets.pop(granted[0])
        order += granted


def one_busy_slot(**settings: int) -> tuple[Admission, Ticket]:
    gate = Admission(ServingSettings(**{"max_queued_requests": 64, **settings}))
    gate.add_lane(ScriptedLane(), 1)
    return gate, gate.enter("first")


def test_higher_classes_go_first_and_clients_of_one_class_take_turns() -> None:
    gate, running = one_busy_slot()
    tickets = {
        f"{client} {priority.value} {number}": waiting(gate, client, priority)
        for priority in (Priority.LOW, Priority.NORMAL, Priority.HIGH)
        for client in "ab"
        for number in range(2)
    }
    expected = [
        f"{client} {priority.value} {number}" for priority in Priority for number in range(2) for client in "ab"
    ]
    assert order_of(running, tickets) == expected


def test_a_lower_class_is_passed_over_only_so_often() -> None:
    gate, running = one_busy_slot(priority_grants_ahead_max=3)
    tickets = {f"high {number}": waiting(gate, "a", Priority.HIGH) for number in range(8)}
    tickets |= {f"normal {number}": waiting(gate, "b") for number in range(2)}
    tickets |= {f"low {number}": waiting(gate, "c", Priority.LOW) for number in range(2)}
    order = [name.split()[0] for name in order_of(running, tickets)]
    assert order[:3] == ["high"] * 3
    assert sorted(order[3:5]) == ["low", "normal"]
    turns = [index for index, name in enumerate(order) if name == "low"]
    assert turns[1] - turns[0] <= 5  # its own bound, and the one turn of another class that was due as well


def test_a_full_queue_makes_room_for_a_higher_class() -> None:
    gate, _ = one_busy_slot(max_queued_requests=3)
    normal = waiting(gate, "a")
    low = [waiting(gate, client, Priority.LOW) for client in "bc"]
    high = waiting(gate, "d", Priority.HIGH)
    assert [ticket.state for ticket in (normal, *low, high)].count(TicketState.WAITING) == 3
    (put_aside,) = [ticket for ticket in low if ticket.state is TicketState.TURNED_AWAY]
    assert isinstance(put_aside.error, ServerBusyError)
    assert put_aside.error.retry_after_seconds >= 1
    waiting(gate, "d", Priority.HIGH)
    waiting(gate, "d", Priority.HIGH)
    assert normal.state is TicketState.TURNED_AWAY
    with pytest.raises(ServerBusyError):
        gate.enter("d", priority=Priority.HIGH)
    with pytest.raises(ServerBusyError):
        gate.enter("e", priority=Priority.LOW)


def test_one_client_may_fill_the_queue_but_makes_room_for_others_of_its_class() -> None:
    gate, running = one_busy_slot(max_queued_requests=5)
    flood = [waiting(gate, "flood") for _ in range(5)]
    with pytest.raises(ServerBusyError):  # nobody else is locked out by what it has
        gate.enter("flood")
    others = [waiting(gate, "a"), waiting(gate, "b")]
    turned_away = [ticket for ticket in flood if ticket.state is TicketState.TURNED_AWAY]
    assert turned_away == flood[3:]  # its newest ones
    for ticket in turned_away:
        assert isinstance(ticket.error, ServerBusyError)
        assert ticket.error.retry_after_seconds >= 1
    with pytest.raises(ServerBusyError):
        gate.enter("flood")
    tickets = {f"flood {number}": ticket for number, ticket in enumerate(flood[:3])}
    tickets |= {ticket.client: ticket for ticket in others}
    assert order_of(running, tickets) == ["flood 0", "a", "b", "flood 1", "flood 2"]


def test_shares_of_a_full_queue_that_are_even_stay_as_they_are() -> None:
    gate, _ = one_busy_slot(max_queued_requests=4)
    tickets = [waiting(gate, client) for client in "aabb"]
    for client in "ab":
        with pytest.raises(ServerBusyError):
            gate.enter(client)
    third = waiting(gate, "c")
    with pytest.raises(ServerBusyError):
        gate.enter("c")
    assert [ticket.state for ticket in (*tickets, third)].count(TicketState.WAITING) == 4


def test_a_lower_class_is_not_made_room_for() -> None:
    gate, _ = one_busy_slot(max_queued_requests=3)
    many = [waiting(gate, "a", Priority.HIGH) for _ in range(3)]
    with pytest.raises(ServerBusyError):
        gate.enter("b")
    assert {ticket.state for ticket in many} == {TicketState.WAITING}


def test_without_a_queue_no_priority_helps() -> None:
    gate, _ = one_busy_slot(max_queued_requests=0)
    with pytest.raises(ServerBusyError):
        gate.enter("a", priority=Priority.HIGH)


def test_what_lost_its_lane_waits_beside_a_full_queue() -> None:
    gate, running = one_busy_slot(max_queued_requests=0)
    again = gate.enter("a", priority=Priority.LOW, has_waited=True)
    assert again.state is TicketState.WAITING
    running.leases[0].release()
    assert again.state is TicketState.GRANTED
