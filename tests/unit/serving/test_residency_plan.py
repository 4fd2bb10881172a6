"""What is decided about on-demand models, case by case, and over any order of events in a world of made-up models."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.serving.residency_plan import Phase, Plan, ResidencyLimits, Standing, plan_residency

LIMITS = ResidencyLimits(room_bytes=100, swap_after_seconds=30, min_resident_seconds=5)


def out(name: str, size: int | None, waiting_since: float | None = None) -> Standing[str]:
    return Standing(name, Phase.OUT, size, waiting_since_seconds=waiting_since)


def resident(name: str, size: int, since: float = 0, **further: object) -> Standing[str]:
    return replace(Standing(name, Phase.RESIDENT, size, 0, None, since, since), **further)  # type: ignore[arg-type]


def planned(now: float, *standings: Standing[str], limits: ResidencyLimits = LIMITS) -> Plan[str]:
    return plan_residency(now, standings, limits)


def test_nothing_is_opened_that_nobody_asks_for() -> None:
    assert planned(0, out("a", 60), out("b", 60)) == Plan()


def test_what_is_asked_for_is_opened_where_it_fits() -> None:
    assert planned(0, out("a", 60, 0), out("b", 40, 0)).open == ("a", "b")


def test_an_idle_model_makes_room_and_the_other_is_opened_once_it_is_gone() -> None:
    plan = planned(10, resident("a", 60), out("b", 60, 9))
    assert (plan.unload, plan.swaps, plan.open) == (("a",), {"a": "b"}, ())
    closing = replace(resident("a", 60), phase=Phase.CLOSING)
    assert planned(11, closing, out("b", 60, 9)) == Plan()
    assert planned(12, out("a", 60), out("b", 60, 9)).open == ("b",)


def test_the_least_recently_used_goes_first_and_no_more_than_are_needed() -> None:
    old, new = resident("old", 20), resident("new", 50, last_used_seconds=8.0)
    assert planned(10, new, old, out("c", 50, 9)).unload == ("old",)
    # The old one alone is too little, and with the new one gone it is not needed.
    assert planned(10, new, old, out("c", 70, 9)).unload == ("new",)


def test_a_model_stays_for_a_while_before_it_makes_room() -> None:
    plan = planned(10, resident("a", 60, since=8), out("b", 60, 9))
    assert (plan.unload, plan.again_at_seconds) == ((), 13)


def test_a_model_with_work_goes_on_until_the_other_has_waited_its_time() -> None:
    busy = resident("a", 60, running=2, waiting_since_seconds=20.0)
    before = planned(38, busy, out("b", 60, 10))
    assert (before.pause, before.unload, before.again_at_seconds) == ((), (), 40)
    after = planned(40, busy, out("b", 60, 10))
    assert (after.pause, after.unload) == (("a",), ())
    drained = replace(busy, running=0, is_paused=True)
    assert planned(41, drained, out("b", 60, 10)).unload == ("a",)


def test_a_turn_lasts_however_long_the_other_waited_before_it() -> None:
    busy = resident("a", 60, since=50, running=1)
    assert planned(60, busy, out("b", 60, 0)).again_at_seconds == 80


def test_a_model_that_was_to_make_room_goes_on_when_nobody_waits_for_it_any_more() -> None:
    paused = resident("a", 60, running=1, is_paused=True)
    assert planned(50, paused, out("b", 60)).resume == ("a",)


def test_room_that_one_waits_for_is_not_taken_by_one_that_came_after_it() -> None:
    busy = resident("a", 60, running=1)
    plan = planned(20, busy, out("large", 90, 10), out("small", 30, 12))
    assert plan.open == ()
    # It needs no more than what is left beside the large one.
    assert planned(20, busy, out("large", 90, 10), out("tiny", 10, 12)).open == ("tiny",)


def test_a_model_that_never_fits_is_refused_with_the_numbers_and_holds_up_nobody() -> None:
    plan = planned(0, out("huge", 101, 0), out("a", 60, 1))
    assert [(one.model, one.needed_bytes, one.room_bytes) for one in plan.refuse] == [("huge", 101, 100)]
    assert plan.open == ("a",)


def test_a_model_of_which_nothing_is_known_gets_all_the_room() -> None:
    assert planned(0, out("a", None, 0), out("b", 10, 1)).open == ("a",)
    assert planned(10, resident("b", 10), out("a", None, 9)).unload == ("b",)


def test_an_idle_model_goes_after_its_time_whoever_needs_the_memory() -> None:
    idle = resident("a", 60, idle_timeout_seconds=20.0)
    assert planned(19, idle).again_at_seconds == 20
    plan = planned(20, idle)
    assert (plan.unload, plan.swaps) == (("a",), {})
    assert planned(20, replace(idle, running=1)) == Plan()


def test_models_that_turned_out_larger_shrink_to_what_fits() -> None:
    plan = planned(10, resident("a", 70), resident("b", 60, last_used_seconds=9.0))
    assert (plan.unload, plan.swaps) == (("a",), {"a": None})


@dataclass
class MadeUpModel:
    name: str
    size: int
    phase: Phase = Phase.OUT
    running: int = 0
    queue: list[float] = field(default_factory=list)  # when each came
    resident_since: float = 0.0
    last_used: float = 0.0
    is_paused: bool = False
    busy_until: float = 0.0


class World:
    """Does what the plan says, as the daemon does, and counts what must hold. A request holds its slot for a second."""

    SLOTS = 2
    RUN_SECONDS = 1.0
    CHANGE_SECONDS = 2.0  # to open or to close one

    def __init__(self, sizes: list[int], limits: ResidencyLimits) -> None:
        self.limits = limits
        self.now = 0.0
        self.models = {f"m{number}": MadeUpModel(f"m{number}", size) for number, size in enumerate(sizes)}
        self.runs: list[tuple[float, str]] = []
        self.changes: list[tuple[float, str, Phase]] = []
        self.refused = 0
        self.waits: list[float] = []

    def ask(self, name: str) -> None:
        self.models[name].queue.append(self.now)
        self.act()

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while True:
            plan = self.plan()
            moments = [moment for moment, *_ in (*self.runs, *self.changes)]
            if plan.again_at_seconds is not None:
                moments.append(max(plan.again_at_seconds, self.now))
            following = min((moment for moment in moments if moment > self.now or moment in moments), default=until)
            if following > until:
                self.now = until
                return
            self.now = max(self.now, following)
            self._happen()
            self.act()
            if not moments:
                self.now = until
                return

    def plan(self) -> Plan[str]:
        standings = [
            Standing(
                model.name,
                model.phase,
                model.size,
                model.running,
                min(model.queue, default=None),
                model.resident_since,
                model.last_used,
                None,
                model.is_paused,
            )
            for model in self.models.values()
        ]
        return plan_residency(self.now, standings, self.limits)

    def act(self) -> None:
        for _ in range(10):
            plan = self.plan()
            if plan == Plan(again_at_seconds=plan.again_at_seconds):
                break
            self._do(plan)
        else:
            raise AssertionError(f"the plan never comes to rest: {plan}")
        self._grant()

    def _do(self, plan: Plan[str]) -> None:
        for refusal in plan.refuse:
            self.refused += len(self.models[refusal.model].queue)
            self.models[refusal.model].queue.clear()
        for name in plan.resume:
            self.models[name].is_paused = False
        for name in plan.pause:
            self.models[name].is_paused = True
        for name in plan.unload:
            model = self.models[name]
            assert model.running == 0, "unloaded under a running request"
            assert self.now >= model.resident_since + self.limits.min_resident_seconds, "swapped too soon"
            model.phase = Phase.CLOSING
            self.changes.append((self.now + self.CHANGE_SECONDS, name, Phase.OUT))
        for name in plan.open:
            model = self.models[name]
            assert model.phase is Phase.OUT
            assert model.queue, "opened for nobody"
            model.phase = Phase.OPENING
            self.changes.append((self.now + self.CHANGE_SECONDS, name, Phase.RESIDENT))
        held = sum(model.size for model in self.models.values() if model.phase is not Phase.OUT)
        assert held <= self.limits.room_bytes, "more in memory than there is room for"

    def _happen(self) -> None:
        for moment, name in [run for run in self.runs if run[0] <= self.now]:
            self.runs.remove((moment, name))
            self.models[name].running -= 1
            self.models[name].last_used = self.now
        for change in [change for change in self.changes if change[0] <= self.now]:
            self.changes.remove(change)
            model = self.models[change[1]]
            model.phase, model.is_paused = change[2], False
            model.resident_since = model.last_used = self.now
        self._grant()

    def _grant(self) -> None:
        for model in self.models.values():
            while model.phase is Phase.RESIDENT and not model.is_paused and model.queue and model.running < self.SLOTS:
                self.waits.append(self.now - model.queue.pop(0))
                model.running += 1
                self.runs.append((self.now + self.RUN_SECONDS, model.name))

    @property
    def waiting(self) -> int:
        return sum(len(model.queue) for model in self.models.values())


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 3)),
        st.tuples(st.just("pass"), st.floats(0.1, 40, allow_nan=False)),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 120), min_size=1, max_size=4),
    events=EVENTS,
    swap_after=st.floats(0.5, 20),
    min_resident=st.floats(0, 10),
)
def test_in_any_order_of_events_every_request_is_served_within_bounds(
    sizes: list[int], events: list[tuple[str, float]], swap_after: float, min_resident: float
) -> None:
    world = World(sizes, ResidencyLimits(100, swap_after, min_resident))
    names = list(world.models)
    asked = 0
    for event, value in events:
        if event == "ask":
            world.ask(names[int(value) % len(names)])
            asked += 1
        else:
            world.pass_time(value)
    turn = max(swap_after, min_resident) + World.RUN_SECONDS + 2 * World.CHANGE_SECONDS
    # A turn serves at least two requests a second; each of the others may have one before it comes back.
    world.pass_time((len(names) + 1) * turn * (asked + 1))
    assert world.waiting == 0, "a request waits for ever"
    assert len(world.waits) + world.refused == asked
    assert all(world.models[name].size <= 100 for name in names if world.models[name].phase is not Phase.OUT)


@settings(max_examples=50, deadline=None)
@given(swap_after=st.floats(1, 20), min_resident=st.floats(0, 10))
def test_under_steady_load_on_two_models_turns_are_as_long_as_they_are_set(
    swap_after: float, min_resident: float
) -> None:
    world = World([80, 80], ResidencyLimits(100, swap_after, min_resident))
    opened = 0
    seconds = 200
    for _ in range(seconds):
        before = {name: model.phase for name, model in world.models.items()}
        for name in world.models:
            while len(world.models[name].queue) < 8:  # never idle
                world.ask(name)
        world.pass_time(1)
        opened += sum(
            model.phase is Phase.OPENING and before[name] is not Phase.OPENING for name, model in world.models.items()
        )
    assert opened <= seconds / swap_after + 2
    assert max(world.waits) <= 3 * (max(swap_after, min_resident) + World.RUN_SECONDS + 2 * World.CHANGE_SECONDS) + 8
