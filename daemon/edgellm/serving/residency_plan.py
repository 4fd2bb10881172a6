"""Which on-demand models are to be in memory: a pure decision, made anew whenever something changes.

A model that is asked for is opened where it fits. Where it does not, idle models make room at once, the least recently
used first; a model with work goes on until the other has waited its time, then takes nothing new, finishes what runs,
and makes room. What is still waiting for it waits on, and it is now the one that waits for its turn.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

Model = TypeVar("Model", bound=Hashable)


class Phase(Enum):
    OUT = "out"
    OPENING = "opening"
    RESIDENT = "resident"
    CLOSING = "closing"


@dataclass(frozen=True, slots=True)
class ResidencyLimits:
    """``room_bytes`` is what on-demand models may take together."""

    room_bytes: int
    swap_after_seconds: float
    min_resident_seconds: float


@dataclass(frozen=True, slots=True)
class Standing(Generic[Model]):
    """An on-demand model as it stands. Times are of the clock that the plan is told.

    ``memory_bytes`` None is a model of which nothing is known: it gets all the room there is. ``running`` counts
    requests that hold a slot; ``waiting_since_seconds`` is None when no request waits.
    """

    model: Model
    phase: Phase
    memory_bytes: int | None
    running: int = 0
    waiting_since_seconds: float | None = None
    resident_since_seconds: float = 0.0
    last_used_seconds: float = 0.0
    idle_timeout_seconds: float | None = None
    is_paused: bool = False

    @property
    def has_work(self) -> bool:
        return self.running > 0 or self.waiting_since_seconds is not None


@dataclass(frozen=True, slots=True)
class Refusal(Generic[Model]):
    """A model that would not fit if it were alone."""

    model: Model
    needed_bytes: int
    room_bytes: int


@dataclass(frozen=True, slots=True)
class Plan(Generic[Model]):
    """What to do now. A paused model grants no slot any more; ``again_at_seconds`` is when time alone changes the plan.

    ``swaps`` are those of ``unload`` that make room, each with the model it is for (None: all that are there turned out
    too large together); the others were idle for longer than they may be. ``made_room_for`` are all models that others
    leave for, now or once they have finished what runs.
    """

    open: Sequence[Model] = ()
    pause: Sequence[Model] = ()
    resume: Sequence[Model] = ()
    unload: Sequence[Model] = ()
    swaps: Mapping[Model, Model | None] = field(default_factory=dict)
    made_room_for: Sequence[Model] = field(default=(), compare=False)  # says why, and is nothing to do
    refuse: Sequence[Refusal[Model]] = ()
    again_at_seconds: float | None = None


def plan_residency(now_seconds: float, standings: Sequence[Standing[Model]], limits: ResidencyLimits) -> Plan[Model]:
    """The decision. Doing all of it and asking again at once changes nothing more."""
    return _Planner(now_seconds, standings, limits).plan()


class _Planner(Generic[Model]):
    def __init__(self, now: float, standings: Sequence[Standing[Model]], limits: ResidencyLimits) -> None:
        self._now = now
        self._standings = standings
        self._limits = limits
        self._free_bytes = limits.room_bytes - sum(self._bytes(one) for one in standings if one.phase is not Phase.OUT)
        # Beside what is free: what is being closed or about to be, less what was promised to those who wait for it.
        self._coming_bytes = sum(self._bytes(one) for one in standings if one.phase is Phase.CLOSING)
        self._residents = sorted(
            (one for one in standings if one.phase is Phase.RESIDENT),
            key=lambda one: (one.has_work, one.resident_since_seconds if one.has_work else one.last_used_seconds),
        )
        self._open: list[Model] = []
        self._leaving: list[Standing[Model]] = []
        self._room_for: dict[Model, Model | None] = {}
        self._promised: set[Model] = set()
        self._again: list[float] = []

    def plan(self) -> Plan[Model]:
        asked = [one for one in self._standings if one.phase is Phase.OUT and one.waiting_since_seconds is not None]
        refusals = [
            Refusal(one.model, self._bytes(one), self._limits.room_bytes)
            for one in asked
            if self._bytes(one) > self._limits.room_bytes
        ]
        refused = {refusal.model for refusal in refusals}
        for one in sorted(asked, key=_waiting_since):
            if one.model not in refused:
                self._find_room(one)
        self._shed_excess()
        for_others = frozenset(one.model for one in self._leaving)
        self._leaving += self._idle_too_long(for_others)
        leaving = {one.model for one in self._leaving}
        return Plan(
            open=tuple(self._open),
            pause=tuple(one.model for one in self._leaving if one.running and not one.is_paused),
            resume=tuple(one.model for one in self._residents if one.is_paused and one.model not in leaving),
            unload=tuple(one.model for one in self._leaving if not one.running),
            swaps={
                one.model: self._room_for.get(one.model)
                for one in self._leaving
                if not one.running and one.model in for_others
            },
            made_room_for=tuple(dict.fromkeys(one for one in self._room_for.values() if one is not None)),
            refuse=tuple(refusals),
            again_at_seconds=min(self._again, default=None),
        )

    def _bytes(self, one: Standing[Model]) -> int:
        return max(0, self._limits.room_bytes) if one.memory_bytes is None else one.memory_bytes

    def _find_room(self, asked: Standing[Model]) -> None:
        """Open it, or choose who makes room. What it waits for is kept from those who came after it."""
        needed = self._bytes(asked)
        if needed <= min(self._free_bytes, self._free_bytes + self._coming_bytes):
            self._open.append(asked.model)
            self._free_bytes -= needed
            return
        makers = self._makers_of_room(needed - self._free_bytes - self._coming_bytes)
        self._promised |= {one.model for one in makers}
        self._coming_bytes += sum(self._bytes(one) for one in makers) - needed
        turn_over = max((self._turn_over(one, asked) for one in makers), default=self._now)
        if turn_over > self._now:
            self._again.append(turn_over)
        else:
            self._leaving += makers
            self._room_for |= {one.model: asked.model for one in makers}

    def _makers_of_room(self, lacking_bytes: int) -> list[Standing[Model]]:
        """As few as will do: idle ones first, and of those with work the one that has had its turn for longest.

        None when all together are too few: then others are just being opened, and the question comes again.
        """
        chosen: list[Standing[Model]] = []
        for one in self._residents:
            if lacking_bytes <= 0:
                break
            if one.model not in self._promised:
                chosen.append(one)
                lacking_bytes -= self._bytes(one)
        if lacking_bytes > 0:
            return []
        for one in list(chosen):
            if lacking_bytes + self._bytes(one) <= 0:
                chosen.remove(one)
                lacking_bytes += self._bytes(one)
        return chosen

    def _turn_over(self, one: Standing[Model], asked: Standing[Model]) -> float:
        stays_until = one.resident_since_seconds + self._limits.min_resident_seconds
        if not one.has_work:
            return stays_until
        both_since = max(_waiting_since(asked), one.resident_since_seconds)
        return max(stays_until, both_since + self._limits.swap_after_seconds)

    def _shed_excess(self) -> None:
        """Models that turned out larger than they were thought: idle ones go until the rest fits."""
        going = [one for one in self._standings if one.phase is Phase.CLOSING] + self._leaving
        excess_bytes = -self._free_bytes - sum(self._bytes(one) for one in going)
        for one in self._residents:
            if excess_bytes <= 0:
                return
            if one.has_work or one.model in self._promised:
                continue
            stays_until = one.resident_since_seconds + self._limits.min_resident_seconds
            if stays_until > self._now:
                self._again.append(stays_until)
            else:
                self._leaving.append(one)
            excess_bytes -= self._bytes(one)

    def _idle_too_long(self, already: frozenset[Model]) -> list[Standing[Model]]:
        expired = []
        for one in self._residents:
            if one.has_work or one.model in already or one.idle_timeout_seconds is None:
                continue
            ends = one.last_used_seconds + one.idle_timeout_seconds
            if ends <= self._now:
                expired.append(one)
            else:
                self._again.append(ends)
        return expired


def _waiting_since(one: Standing[Model]) -> float:
    assert one.waiting_since_seconds is not None  # noqa: S101  # only models that are asked for come here
    return one.waiting_since_seconds
