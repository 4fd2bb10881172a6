"""Admission: who runs now, who waits, who is turned away. One a model; used from its event loop only.

A request enters with a ticket. A granted ticket carries leases, one a slot; each lease is released exactly once,
after the lane has let go of what ran in it. Waiting requests are served by priority class, and round robin between
the clients of a class; no client's requests fill the queue against another client of that class. A request whose
prompt a lane's context cache may know says so with its affinity.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol

from edgellm.errors import AdmissionError, EdgeLLMError, ServerBusyError
from edgellm.serving.lane import Lane
from edgellm.serving.priority import Priority, PriorityQueue
from edgellm.serving.run_lengths import RunLengths, RunProgress
from edgellm.serving.settings import ServingSettings


class TicketState(Enum):
    WAITING = "waiting"
    GRANTED = "granted"
    RELEASED = "released"  # every lease was given back
    TIMED_OUT = "timed out"
    ABANDONED = "abandoned"  # the client left while it waited
    TURNED_AWAY = "turned away"  # shutdown, the model went away, or another request took its place


class TicketEvent(Enum):
    GRANT = "grant"
    TIME_OUT = "time out"
    ABANDON = "abandon"
    TURN_AWAY = "turn away"
    LAST_RELEASE = "last release"


TRANSITIONS: Mapping[tuple[TicketState, TicketEvent], TicketState] = {
    (TicketState.WAITING, TicketEvent.GRANT): TicketState.GRANTED,
    (TicketState.WAITING, TicketEvent.TIME_OUT): TicketState.TIMED_OUT,
    (TicketState.WAITING, TicketEvent.ABANDON): TicketState.ABANDONED,
    (TicketState.WAITING, TicketEvent.TURN_AWAY): TicketState.TURNED_AWAY,
    (TicketState.GRANTED, TicketEvent.LAST_RELEASE): TicketState.RELEASED,
}


class Affinity(Protocol):
    """Which lane a request would rather have. Both are called for each slot that is granted."""

    def choose(self, loads: Mapping[Lane, float]) -> Lane:
        """One of the lanes that have a free slot; a load is the share of its slots that is taken."""
        ...

    def goes_to(self, lane: Lane) -> None: ...


class AdmissionLogicError(RuntimeError):
    """An event that the table does not know in this state: a bug in serving, never a client's doing."""


class Lease:
    """The right to one slot of one lane. ``progress`` says how far what runs in it is; None where that says nothing."""

    __slots__ = ("_admission", "_released", "lane", "progress", "since_seconds", "ticket")

    def __init__(self, admission: Admission, ticket: Ticket, lane: Lane, since_seconds: float) -> None:
        self._admission = admission
        self._released = False
        self.ticket = ticket
        self.lane = lane
        self.since_seconds = since_seconds
        self.progress: Callable[[], RunProgress | None] = lambda: None

    def release(self, *, was_used: bool = True) -> None:
        """``was_used``: it says something of how long requests take."""
        if self._released:
            raise AdmissionLogicError("a lease was released twice")
        self._released = True
        self._admission._took_back(self, was_used)


class Ticket:
    """A request's place. ``settled`` is called once, when it stops waiting."""

    __slots__ = (
        *("affinity", "client", "entered_seconds", "error", "leases", "outstanding", "priority", "settled", "state"),
        "wanted_slots",
    )

    def __init__(
        self,
        client: str,
        wanted_slots: int,
        entered_seconds: float,
        affinity: Affinity | None = None,
        priority: Priority = Priority.NORMAL,
    ) -> None:
        self.client = client
        self.priority = priority
        self.wanted_slots = wanted_slots
        self.affinity = affinity
        self.entered_seconds = entered_seconds
        self.state = TicketState.WAITING
        self.leases: list[Lease] = []
        self.outstanding = 0
        self.error: EdgeLLMError | None = None
        self.settled: Callable[[], None] | None = None

    def apply(self, event: TicketEvent) -> None:
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            raise AdmissionLogicError(f"a ticket that is {self.state.value} got the event {event.value}")
        was_waiting = self.state is TicketState.WAITING
        self.state = following
        if was_waiting and self.settled is not None:
            self.settled()


class Admission:
    """Never grants more slots than the lanes have, and leaves no slot idle while somebody waits, unless it is paused.

    ``on_change`` is called when work came, or ended.
    """

    def __init__(
        self,
        settings: ServingSettings,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self._clock = clock
        self._on_change = on_change
        self._paused = False
        self.slots_when_open = 0
        """Requests that may wait beyond the queue's limit while there is no lane: those that would run if it were."""
        self.last_used_seconds = clock()
        self._capacity: dict[Lane, int] = {}
        self._running: dict[Lane, int] = {}
        self._held: set[Lease] = set()
        self._queue: PriorityQueue[Ticket] = PriorityQueue()
        self._closed_because: Callable[[], AdmissionError] | None = None
        self._run_lengths = RunLengths()

    @property
    def capacity(self) -> int:
        return sum(self._capacity.values())

    @property
    def running(self) -> int:
        return len(self._held)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def busy_lanes(self) -> int:
        """Lanes with at least one sequence."""
        return sum(self._running[lane] > 0 for lane in self._capacity)

    @property
    def waiting_since_seconds(self) -> float | None:
        """When the one came that waits for longest; None when nobody waits."""
        return min((ticket.entered_seconds for ticket in self._queue), default=None)

    @property
    def has_work(self) -> bool:
        return bool(self._held or self._queue)

    @property
    def is_paused(self) -> bool:
        return self._paused

    def pause(self) -> None:
        """Grant nothing until ``resume``: what runs goes on, what comes waits."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._dispatch()

    def add_lane(self, lane: Lane, slots: int) -> None:
        self._capacity[lane] = slots
        self._running.setdefault(lane, 0)
        self._dispatch()

    def remove_lane(self, lane: Lane) -> None:
        """Leases held on it stay with their requests until those end."""
        self._capacity.pop(lane, None)
        self._forget_if_gone(lane)

    def close(self, because: Callable[[], AdmissionError]) -> None:
        """Turns away whoever waits and whoever comes; what runs goes on."""
        self._closed_because = because
        while (ticket := self._next_waiting()) is not None:
            ticket.error = because()
            ticket.apply(TicketEvent.TURN_AWAY)

    def reopen(self) -> None:
        """Take requests again after ``close``."""
        self._closed_because = None

    def turn_away(self, client: str, error: EdgeLLMError) -> None:
        """Turns away what waits of one client; what runs of it goes on, and it may come again."""
        for ticket in self._queue.remove_client(client):
            ticket.error = error
            ticket.apply(TicketEvent.TURN_AWAY)

    def enter(
        self,
        client: str,
        wanted_slots: int = 1,
        affinity: Affinity | None = None,
        *,
        priority: Priority = Priority.NORMAL,
        has_waited: bool = False,
    ) -> Ticket:
        """A ticket that is granted at once or waits. Raises AdmissionError when neither is possible.

        One that ``has_waited`` in this queue before finds a place in it however full it is; for another the newest of
        a lower class makes room, if there is one, or else of a client of its class that has more waiting.
        """
        if self._closed_because is not None:
            raise self._closed_because()
        ticket = Ticket(client, wanted_slots, self._clock(), affinity, priority)
        if self._free > 0:
            self._grant(ticket)
        else:
            if self.waiting >= self._places and not has_waited:
                self._make_room_for(ticket)
            self._queue.put(ticket)
        self._on_change()
        return ticket

    def _make_room_for(self, ticket: Ticket) -> None:
        """Raises ServerBusyError where everybody who waits has as good a claim."""
        because = "a request of a higher priority"
        put_aside = self._queue.newest_below(ticket.priority)
        if put_aside is None:
            because = "another client, which had fewer requests waiting,"
            put_aside = self._queue.newest_of_larger_share(ticket)
        if put_aside is None:
            raise self._busy("The server is busy and its queue is full.")
        self._queue.remove(put_aside)
        put_aside.error = self._busy(f"The server is busy, and {because} took this one's place.")
        put_aside.apply(TicketEvent.TURN_AWAY)

    @property
    def _places(self) -> int:
        return self.settings.max_queued_requests + (0 if self._capacity else self.slots_when_open)

    def time_out(self, ticket: Ticket) -> None:
        self._leave_queue(ticket)
        ticket.error = self._busy("The request waited in the queue for longer than the server allows.")
        ticket.apply(TicketEvent.TIME_OUT)

    def abandon(self, ticket: Ticket) -> None:
        self._leave_queue(ticket)
        ticket.apply(TicketEvent.ABANDON)

    async def acquire(
        self,
        client: str,
        wanted_slots: int = 1,
        affinity: Affinity | None = None,
        *,
        priority: Priority = Priority.NORMAL,
        has_waited: bool = False,
    ) -> list[Lease]:
        """Between one and ``wanted_slots`` leases. A caller that is cancelled holds nothing afterwards."""
        ticket = self.enter(client, wanted_slots, affinity, priority=priority, has_waited=has_waited)
        if ticket.state is TicketState.WAITING:
            await self._settle(ticket)
        if ticket.error is not None:
            raise ticket.error
        return ticket.leases

    async def _settle(self, ticket: Ticket) -> None:
        loop = asyncio.get_running_loop()
        settled = loop.create_future()
        ticket.settled = lambda: None if settled.done() else settled.set_result(None)
        timer = loop.call_later(self.settings.queue_timeout_seconds, self._time_out_if_waiting, ticket)
        try:
            await settled
        except asyncio.CancelledError:
            if ticket.state is TicketState.WAITING:
                self.abandon(ticket)
            # The grant and the cancellation can meet in one turn of the loop.
            for lease in ticket.leases:
                lease.release()
            raise
        finally:
            timer.cancel()

    def _time_out_if_waiting(self, ticket: Ticket) -> None:
        if ticket.state is TicketState.WAITING:
            self.time_out(ticket)

    def retry_after_seconds(self) -> float:
        """When the first of the running requests should be done: see RunLengths."""
        now = self._clock()
        running = [(now - lease.since_seconds, lease.progress()) for lease in self._held]
        return self._run_lengths.until_next_end_seconds(running)

    def _busy(self, message: str) -> ServerBusyError:
        return ServerBusyError(message, retry_after_seconds=self.retry_after_seconds())

    @property
    def _free(self) -> int:
        if self._paused:
            return 0
        return sum(max(0, slots - self._running[lane]) for lane, slots in self._capacity.items())

    def _next_waiting(self) -> Ticket | None:
        return self._queue.take(self.settings.priority_grants_ahead_max)

    def _leave_queue(self, ticket: Ticket) -> None:
        if not self._queue.remove(ticket):
            raise AdmissionLogicError(f"a ticket that is {ticket.state.value} is not in the queue")
        self._on_change()

    def _forget_if_gone(self, lane: Lane) -> None:
        if lane not in self._capacity and self._running.get(lane) == 0:
            del self._running[lane]

    def _dispatch(self) -> None:
        while self._free > 0 and (ticket := self._next_waiting()) is not None:
            self._grant(ticket)

    def _grant(self, ticket: Ticket) -> None:
        now = self._clock()
        for _ in range(min(ticket.wanted_slots, self._free)):
            lane = self._lane_for(ticket.affinity)
            self._running[lane] += 1
            lease = Lease(self, ticket, lane, now)
            self._held.add(lease)
            ticket.leases.append(lease)
        ticket.outstanding = len(ticket.leases)
        ticket.apply(TicketEvent.GRANT)

    def _lane_for(self, affinity: Affinity | None) -> Lane:
        """The least busy one, unless the context cache of another that has room fits better."""
        loads = {lane: self._running[lane] / slots for lane, slots in self._capacity.items()}
        lane = min(loads, key=lambda lane: loads[lane])
        if affinity is None:
            return lane
        lane = affinity.choose({lane: load for lane, load in loads.items() if load < 1})
        affinity.goes_to(lane)
        return lane

    def _took_back(self, lease: Lease, was_used: bool) -> None:
        self._held.remove(lease)
        self.last_used_seconds = self._clock()
        self._running[lease.lane] -= 1
        self._forget_if_gone(lease.lane)
        if was_used:
            self._run_lengths.ended(self._clock() - lease.since_seconds, lease.progress())
        lease.ticket.outstanding -= 1
        if lease.ticket.outstanding == 0:
            lease.ticket.apply(TicketEvent.LAST_RELEASE)
        self._dispatch()
        self._on_change()
