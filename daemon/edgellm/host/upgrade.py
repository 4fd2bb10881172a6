"""Upgrade: one release takes another's place in named steps, or everything is as it was before.

Each step is written down before and after it, so that what a power cut left is known at the next boot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from edgellm.durable_file import write_durably
from edgellm.errors import (
    EdgeLLMError,
    ReleaseSourceError,
    ServiceDownError,
    UpgradeError,
    UpgradeReturnedError,
    VersionFloorError,
)
from edgellm.host.bundle_extras import BundleExtras, forget_unfinished
from edgellm.host.disk_room import Need, require_room_for_all, write_failure
from edgellm.host.engine_pins import let_go, pin_present
from edgellm.host.first_configuration import FirstConfiguration
from edgellm.host.host_state import HostState, Journey, Step, StepState
from edgellm.host.operator_edits import OperatorEdits
from edgellm.host.paths import HostPaths
from edgellm.host.release import Release
from edgellm.host.releases import Releases
from edgellm.host.service_unit import ServiceUnit, reload_units
from edgellm.host.signature import trust
from edgellm.host.smoke import SmokeResult, smoke_chat
from edgellm.host.snapshot import drop_snapshot, take_snapshot
from edgellm.host.source import Source
from edgellm.host.upgrade_report import StepReport, UpgradeReport
from edgellm.host.versions import Version

READY_DEADLINE_SECONDS = 1800.0  # large models load from slow disks
SPARE_BYTES = 200_000_000  # the service writes too
KEPT_RELEASES = 2
ROOM_REMEDY = "make room, or keep fewer releases (--keep)"
# What puts back the release of before. A disk that is full raises the second.
FAILURES = (EdgeLLMError, OSError, KeyboardInterrupt)


T = TypeVar("T")
OnStep = Callable[[StepReport], None]


class Upgrade:
    """Used under ``HostState.locked``."""

    def __init__(
        self,
        paths: HostPaths,
        state: HostState,
        releases: Releases,
        on_step: OnStep,
        *,
        ready_deadline_seconds: float = READY_DEADLINE_SECONDS,
    ) -> None:
        self._paths = paths
        self._state = state
        self._releases = releases
        self._on_step = on_step
        self._ready_deadline_seconds = ready_deadline_seconds
        self._edits = OperatorEdits(paths, state, releases)
        self._unit = ServiceUnit()
        self._stopped_at: float | None = None
        self._down_seconds: float | None = None
        self._was_cut_short = False
        self._smoke: Sequence[SmokeResult] = ()
        self._first = FirstConfiguration(paths, state)
        self._extras: BundleExtras | None = None
        self._notes: Sequence[str] = ()

    # What is asked for

    def to_source(
        self, source: Source, text: str, *, keep: int, config_file: Path | None = None, only_prepare: bool = False
    ) -> UpgradeReport:
        """With ``only_prepare`` it is put beside the one that serves, and no more. Raises an UpgradeError for what is
        refused before anything has changed."""
        self.settle()
        current = self._releases.current()
        known = self._releases.identify(source)
        if known is not None:
            self._refuse_below_floor(known.version)
        self._refuse_without_room(source, known, current)
        if known is not None and known.id == current.id and config_file is None:
            if not self._unit.is_active():
                return self._serve(current, source, "started")
            if self._first.offered_by(source) is None and not self._extras_of(source).wanted:
                self._accept(source)
                self._finish_serving(current, source)
                return UpgradeReport("unchanged", current.id, current.id, current.id, notes=self._notes)
        if config_file is None:
            config_file = self._first.offered_by(source)
        config_text = None if config_file is None else str(config_file.absolute())
        journey = Journey(current, text, keep, config_file=config_text, floor=source.floor)
        return self._prepare(journey, source) if only_prepare else self._travel(journey, source)

    def first(self, source: Source) -> UpgradeReport:
        """Install from the source where nothing is installed yet. Doing it again goes on. Raises an UpgradeError."""
        known = self._releases.identify(source)
        if known is not None:
            self._refuse_below_floor(known.version)
        self._refuse_without_room(source, known)
        release = self._step(Step.STAGED, known, lambda: self._releases.stage(source))
        self._refuse_below_floor(release.version)

        def install() -> None:
            self._first.begin()
            with self._first.noted():
                self._place_first_configuration(source)
                self._releases.switch(release)
                self._releases.install(release)
            reload_units()

        self._step(Step.SWITCHED, release, install)
        return self._serve(release, source, "installed")

    def _serve(self, release: Release, source: Source, result: str) -> UpgradeReport:
        """There is none to go back to. Raises an UpgradeError."""
        forget_unfinished(self._paths)
        self._accept(source)
        self._place_first_configuration(source)
        self._notes = [*self._notes, *self._extras_of(source).bring()]

        def start() -> None:
            self._releases.prewarm(release)
            self._unit.start(self._ready_deadline_seconds)

        self._step(Step.READY, release, start)
        self._smoke = self._step(Step.SMOKE, release, lambda: smoke_chat(self._paths, release.version))
        known = [one for one in self._state.releases() if one.id != release.id]
        self._state.write_releases([*known, replace(release, time_seconds=time.time())])
        self._finish_serving(release, source)
        report = UpgradeReport(result, release.id, release.id, release.id, smoke=self._smoke, notes=self._notes)
        self._state.end_journey(report.as_json())
        return report

    def _finish_serving(self, release: Release, source: Source) -> None:
        """Of what serves: also where a power cut came between, or the source brings no more than a floor."""
        if all(one.id != release.id for one in self._state.releases()):
            self._state.write_releases([*self._state.releases(), replace(release, time_seconds=time.time())])
        if source.floor is not None:
            self._state.raise_floor(Version(source.floor))
        self._first.end()

    def _step(self, step: Step, release: Release | None, work: Callable[[], T]) -> T:
        name, began = None if release is None else release.id, time.monotonic()
        self._on_step(StepReport(step, StepState.BEGUN, name))
        done = work()
        self._on_step(StepReport(step, StepState.DONE, name, time.monotonic() - began))
        return done

    def back_to(self, wanted: str | None, *, keep: int, only_prepare: bool = False) -> UpgradeReport:
        """To a release that was kept; None is the one that served before. Raises an UpgradeError."""
        self.settle()
        current = self._releases.current()
        kept = [one for one in self._state.releases() if one.id != current.id and self._releases.is_staged(one)]
        names = ", ".join(one.id for one in kept) or "none"
        chosen = kept[-1:] if wanted is None else [one for one in kept if wanted in (one.id, one.version)][-1:]
        if not chosen:
            if wanted in (current.id, current.version):
                return UpgradeReport("unchanged", current.id, current.id, self._serving(current))
            what = "no earlier release" if wanted is None else f"no release {wanted}"
            raise ReleaseSourceError(f"{what} is kept on this machine — kept are: {names}")
        self._refuse_below_floor(chosen[0].version)
        journey = Journey(current, None, keep, to_release=chosen[0], is_rollback=True)
        return self._prepare(journey, None) if only_prepare else self._travel(journey, None)

    def prewarm(self) -> UpgradeReport:
        """Fetch, import and build what the prepared release needs, while the other serves. Raises an UpgradeError."""
        journey = self._state.journey()
        if journey is None or not journey.waits:
            raise UpgradeError("no release is prepared on this machine — give one: edgellm upgrade SOURCE --prepare")
        if not journey.has_done(Step.STAGED):
            try:
                journey = self._take(replace(journey, steps=()), Step.STAGED, lambda one: self._stage(one, None))
            except FAILURES as error:
                return self._return(self._state.journey() or journey, Step.STAGED, _reason(error))
        return self._prepared(journey)

    def abandon(self) -> UpgradeReport:
        """Undo what was begun, so that the release of before serves; only where nothing but its end is missing it is
        finished."""
        journey = self._state.journey()
        if journey is None:
            current = self._releases.current()
            return UpgradeReport("unchanged", current.id, None, self._serving(current))
        if journey.has_done(Step.SMOKE):
            return self._arrived(journey)
        last = journey.steps[-1][0] if journey.steps else Step.STAGED
        if journey.interrupted:  # the boot has put it back
            journey = replace(journey, steps=())
        return self._return(journey, last, None)

    def resume(self, open_again: Callable[[str], Source]) -> UpgradeReport:
        """Go on where the last one was interrupted."""
        journey = self._state.journey()
        if journey is None:
            current = self._releases.current()
            return UpgradeReport("unchanged", current.id, None, self._serving(current))
        if journey.has_done(Step.SMOKE):
            return self._arrived(journey)
        staged = (
            journey.has_done(Step.STAGED)
            and journey.to_release is not None
            and self._releases.is_staged(journey.to_release)
        )
        # Also where the release is there already: what else its source brings comes after it.
        source = None if staged or journey.source is None else open_again(journey.source)
        steps = tuple(one for one in journey.steps if staged and one[0] is Step.STAGED)
        return self._travel(replace(journey, steps=steps, interrupted=False), source)

    def recover(self) -> UpgradeReport | None:
        """At boot, before the service starts: what was interrupted is finished where only its end is missing, else the
        release of before is put back. None where nothing was interrupted."""
        journey = self._state.journey()
        if journey is None or journey.interrupted:
            return None
        if journey.has_done(Step.SMOKE):
            return self._arrived(journey)
        self._put_back(journey)
        if journey.waits:
            return None
        self._state.write_journey(replace(journey, interrupted=True))
        return UpgradeReport(
            "returned",
            journey.from_release.id,
            journey.to_release.id if journey.to_release else None,
            journey.from_release.id,
            step=journey.steps[-1][0].value if journey.steps else None,
            reason=f"interrupted at {journey.last}; edgellm upgrade --resume goes on",
            exit_code=UpgradeReturnedError.exit_code,
        )

    def settle(self) -> None:
        """What an earlier upgrade left unfinished is over."""
        report = self.recover()
        journey = self._state.journey()
        if journey is not None:
            self._forget_unused(journey)
            self._state.end_journey({**(report.as_json() if report else {}), "result": "abandoned"})

    # The way

    def _prepare(self, journey: Journey, source: Source | None) -> UpgradeReport:
        self._state.write_journey(journey)
        try:
            journey = self._begin(journey, Step.STAGED)
            journey = replace(self._put_beside(journey, source), prepared=True)
            self._state.write_journey(journey)
            self._edits.forget_coming()
        except FAILURES as error:
            return self._return(self._state.journey() or journey, Step.STAGED, _reason(error))
        return self._prepared(journey)

    def _prepared(self, journey: Journey) -> UpgradeReport:
        present = journey.from_release
        return UpgradeReport("prepared", present.id, _known(journey).id, self._serving(present), notes=self._notes)

    def _travel(self, journey: Journey, source: Source | None) -> UpgradeReport:
        self._state.write_journey(journey)
        step = Step.STAGED
        try:
            if not journey.has_done(Step.STAGED):
                journey = self._take(journey, Step.STAGED, lambda one: self._stage(one, source))
            for step, work in (
                (Step.DRAINED, self._drain),
                (Step.SWITCHED, self._switch),
                (Step.READY, self._start),
                (Step.SMOKE, self._ask),
            ):
                journey = self._take(journey, step, work)
        except FAILURES as error:
            return self._return(self._state.journey() or journey, step, _reason(error))
        return self._arrived(journey)

    def _begin(self, journey: Journey, step: Step) -> Journey:
        journey = journey.at(step, StepState.BEGUN)
        self._state.write_journey(journey)
        self._report(journey, step, StepState.BEGUN)
        return journey

    def _take(self, journey: Journey, step: Step, work: Callable[[Journey], Journey]) -> Journey:
        journey = self._begin(journey, step)
        began = time.monotonic()
        journey = work(journey).at(step, StepState.DONE)
        self._state.write_journey(journey)
        self._report(journey, step, StepState.DONE, time.monotonic() - began)
        return journey

    def _report(self, journey: Journey, step: Step, state: StepState, seconds: float | None = None) -> None:
        self._on_step(StepReport(step, state, journey.to_release.id if journey.to_release else None, seconds))

    def _stage(self, journey: Journey, source: Source | None) -> Journey:
        journey = self._put_beside(journey, source)
        self._releases.prewarm(_known(journey), self._edits.coming)
        self._edits.forget_coming()
        return journey

    def _put_beside(self, journey: Journey, source: Source | None) -> Journey:
        self._unit.refuse_masked()
        release = journey.to_release
        if release is None or not self._releases.is_staged(release):
            if source is None:
                raise ReleaseSourceError(f"{release.id if release else 'the release'} is no longer on this machine")
            release = self._releases.stage(source)
            self._refuse_below_floor(release.version)
            journey = replace(journey, to_release=release)
            self._state.write_journey(journey)
        journey = self._edits.check(journey, release)
        if source is not None:
            self._accept(source, has_configuration=journey.config_file is not None)
            self._notes = [*self._notes, *self._extras_of(source).bring()]
        if journey.prepared:  # engines that came since are not of the release that serves
            return journey
        ours = {*journey.pinned_engines, *(name for one in self._state.releases() for name in one.pinned_engines)}
        pinned = pin_present(self._releases, journey.from_release, ours)
        journey = replace(journey, pinned_engines=sorted({*journey.pinned_engines, *pinned}))
        self._state.write_journey(journey)
        return journey

    def _drain(self, journey: Journey) -> Journey:
        take_snapshot(self._paths, self._state.snapshot_of(journey.from_release))
        self._stopped_at = time.monotonic()
        self._was_cut_short = not self._unit.stop()
        return journey

    def _switch(self, journey: Journey) -> Journey:
        release = _known(journey)
        self._releases.switch(release)
        is_brought_back = journey.is_rollback and self._edits.has_what_belonged_to(release)
        if is_brought_back:
            self._edits.bring_back(journey, release)
        else:
            self._releases.install(release)
        if journey.config_file is not None:
            write_durably(self._paths.configuration, Path(journey.config_file).read_bytes(), 0o644)
        reload_units()
        return self._edits.note_switch(journey, release if is_brought_back else None)

    def _start(self, journey: Journey) -> Journey:
        self._unit.start(self._ready_deadline_seconds)
        self._note_served()
        return journey

    def _ask(self, journey: Journey) -> Journey:
        restarts = self._unit.restarts()
        self._smoke = smoke_chat(self._paths, _known(journey).version)
        if self._unit.restarts() != restarts or not self._unit.is_active():
            raise UpgradeError("the service ended while it was asked")
        return journey

    def _note_served(self) -> None:
        if self._stopped_at is not None:
            self._down_seconds = time.monotonic() - self._stopped_at

    def _arrived(self, journey: Journey) -> UpgradeReport:
        """Only bookkeeping is left: it is done again where it was interrupted."""
        journey = self._take(journey, Step.KEPT, self._keep)
        report = UpgradeReport(
            "rolled_back" if journey.is_rollback else "upgraded",
            journey.from_release.id,
            _known(journey).id,
            _known(journey).id,
            downtime_seconds=self._down_seconds,
            was_cut_short=self._was_cut_short,
            smoke=self._smoke,
            edits_folder=journey.edits_folder,
            refusal_of_edits=journey.refusal_of_edits,
            notes=self._notes,
        )
        self._state.end_journey(report.as_json())
        return report

    def _keep(self, journey: Journey) -> Journey:
        release, left = _known(journey), journey.from_release
        known = {one.id: one for one in self._state.releases()}
        engines = sorted({*known.get(left.id, left).pinned_engines, *journey.pinned_engines})
        left = replace(known.get(left.id, left), pinned_engines=engines)
        arrived = left if left.id == release.id else known.get(release.id, release)
        arrived = replace(arrived, time_seconds=time.time())
        others = [one for one in known.values() if one.id not in (release.id, left.id)]
        earlier = others if left.id == release.id else [*others, left]
        kept = earlier[-journey.keep :] if journey.keep else []
        self._state.write_releases([*kept, arrived])
        for one in earlier:
            if one not in kept:
                self._forget(one, [*kept, arrived])
        if journey.floor is not None:
            self._state.raise_floor(Version(journey.floor))
        self._edits.remember_switch(journey)
        self._first.end()
        return journey

    def _forget(self, release: Release, kept: Sequence[Release]) -> None:
        needed = {name for one in kept for name in one.pinned_engines}
        let_go(self._releases, kept[-1], set(release.pinned_engines) - needed)
        self._releases.drop(release)
        drop_snapshot(self._state.snapshot_of(release))

    # The way back

    def _return(self, journey: Journey, step: Step, reason: str | None) -> UpgradeReport:
        """Nothing failed where there is no reason: it was asked for."""
        journal = self._unit.journal() if journey.has_begun(Step.DRAINED) and reason is not None else ()
        serving: str | None = journey.from_release.id
        result, code = ("abandoned", 0) if reason is None else ("returned", UpgradeReturnedError.exit_code)
        try:
            if journey.has_begun(Step.DRAINED):
                self._unit.stop()
                self._put_back(journey)
                # It served before: a short limit for the new one is not for it.
                self._unit.start(READY_DEADLINE_SECONDS)
                self._note_served()
                self._smoke = smoke_chat(self._paths, journey.from_release.version)
            else:
                self._put_back(journey)
                serving = self._serving(journey.from_release)
        except (EdgeLLMError, OSError) as error:
            serving, result, code = None, "down", ServiceDownError.exit_code
            reason = f"{reason or 'abandoned'}; and {journey.from_release.id} does not serve again: {_reason(error)}"
        self._forget_unused(journey)
        report = UpgradeReport(
            result,
            journey.from_release.id,
            journey.to_release.id if journey.to_release else None,
            serving,
            step=step.value,
            reason=reason,
            downtime_seconds=self._down_seconds,
            was_cut_short=self._was_cut_short,
            smoke=self._smoke if serving else (),
            journal=journal,
            exit_code=code,
            notes=self._notes,
        )
        self._state.end_journey(report.as_json())
        return report

    def _put_back(self, journey: Journey) -> None:
        # First what makes room.
        forget_unfinished(self._paths)
        self._releases.unstage_unfinished()
        self._edits.forget_coming()
        if journey.has_begun(Step.SWITCHED) or not self._is_current(journey.from_release):
            self._releases.switch(journey.from_release)
        if journey.has_begun(Step.SWITCHED):
            self._edits.undo_switch(journey)
        reload_units()

    def _serving(self, release: Release) -> str | None:
        """None where it does not run: nobody has touched it."""
        return release.id if self._unit.is_active() else None

    def _is_current(self, release: Release) -> bool:
        try:
            return self._releases.current().id == release.id
        except UpgradeError:
            return False

    def _forget_unused(self, journey: Journey) -> None:
        """A release that did not make it takes no room, unless it is one that was kept anyway."""
        kept = self._state.releases()
        staged = journey.to_release
        needed = {name for one in kept for name in one.pinned_engines}
        let_go(self._releases, journey.from_release, set(journey.pinned_engines) - needed)
        if staged is not None and staged.id != journey.from_release.id and all(one.id != staged.id for one in kept):
            self._releases.drop(staged)

    # Refusals

    def _refuse_below_floor(self, version: str) -> None:
        floor = self._state.floor()
        try:
            wanted = Version(version)
        except ValueError as error:
            raise ReleaseSourceError(f"the release's version: {error}") from None
        if floor is not None and wanted < floor:
            raise VersionFloorError(
                f"edgellm {version} is older than {floor}, the oldest version that this machine may run — give {floor} "
                "or a newer one"
            )

    def _refuse_without_room(self, source: Source, known: Release | None, current: Release | None = None) -> None:
        forget_unfinished(self._paths)
        needs = list(self._extras_of(source).needs())
        is_current = known is not None and current is not None and known.id == current.id
        if known is None or not (is_current or self._releases.is_staged(known)):
            needed_bytes, place = self._releases.needed_bytes(source)
            needs.append(Need(place, needed_bytes, "the release"))
        require_room_for_all(needs, SPARE_BYTES, ROOM_REMEDY)

    # What a source brings beside the release

    def _extras_of(self, source: Source) -> BundleExtras:
        """Compared once with what is here."""
        if self._extras is None:
            self._extras = BundleExtras(source.extras, self._paths)
        return self._extras

    def _place_first_configuration(self, source: Source) -> None:
        configuration = self._first.offered_by(source)
        if configuration is not None:
            self._first.place(configuration)

    def _accept(self, source: Source, *, has_configuration: bool = False) -> None:
        """Nothing about it was refused."""
        if source.publisher_key is not None:
            trust(self._paths, source.publisher_key)
        if not has_configuration:
            self._notes = [*self._notes, *self._first.note_of(source)]


def _known(journey: Journey) -> Release:
    assert journey.to_release is not None  # noqa: S101  # staging is done
    return journey.to_release


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError):
        return str(write_failure(Path("/"), error))
    return "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
