"""Residency: keeps the on-demand models that are asked for in memory, within what there is. Does what the plan says."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from edgellm.engines.resources.available_memory import MemoryReader, available_memory_bytes
from edgellm.engines.resources.estimate import SPARE_MEMORY_BYTES, mib
from edgellm.errors import InsufficientMemoryError
from edgellm.serving.load_failure import cause_for_log
from edgellm.serving.model import ModelState, ServedModel
from edgellm.serving.residency_plan import Phase, Plan, Refusal, ResidencyLimits, Standing, plan_residency
from edgellm.serving.settings import ServingSettings

_log = logging.getLogger(__name__)

# Where neither a setting nor the machine says what there is.
_NO_LIMIT_BYTES = 1 << 62


@dataclass(slots=True)
class _Kept:
    """An on-demand model as Residency keeps it; ``failures`` are those in a row.

    A model that ``needs_look`` is of a size not known, or failed, or others would leave for it and it was not
    ``looked_into`` since it was last in memory: nobody makes room before that. One of which even that finds no size is
    opened beside the others, and ``needs_all`` once that has run out of room.
    """

    model: ServedModel
    phase: Phase = Phase.OUT
    needs_look: bool = True
    looked_into: bool = False
    failures: int = 0
    needs_all: bool = False
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class Residency:
    """``look`` estimates a model's size anew, ``open_model`` opens it; each returns its error, or None.

    Call ``changed`` whenever work or lanes change.
    """

    def __init__(
        self,
        settings: ServingSettings,
        look: Callable[[ServedModel], Awaitable[BaseException | None]],
        open_model: Callable[[ServedModel], Awaitable[BaseException | None]],
        taken_bytes: Callable[[], int],
        read_available: MemoryReader = available_memory_bytes,
    ) -> None:
        self.settings = settings
        self._look = look
        self._open_model = open_model
        self._taken_bytes = taken_bytes
        self._read_available = read_available
        self._measured_bytes: int | None = None
        self._kept: dict[ServedModel, _Kept] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._closed = False

    def start(self) -> None:
        """Measure what there is: before the first model takes of it."""
        available_bytes = self._read_available()
        if available_bytes is not None:
            self._measured_bytes = max(0, available_bytes - SPARE_MEMORY_BYTES)

    @property
    def memory_bytes(self) -> int:
        """What all models together may take."""
        if self.settings.model_memory_bytes is not None:
            return self.settings.model_memory_bytes
        return _NO_LIMIT_BYTES if self._measured_bytes is None else self._measured_bytes

    @property
    def room_bytes(self) -> int:
        """What on-demand models may take: the rest beside those that stay."""
        return self.memory_bytes - self._taken_bytes()

    @property
    def held_bytes(self) -> int:
        """What on-demand models take."""
        return sum(kept.model.memory_bytes or 0 for kept in self._kept.values() if kept.phase is not Phase.OUT)

    def keep(self, model: ServedModel, phase: Phase = Phase.OUT) -> None:
        # That it does not fit is no doubt about its size.
        failed = model.failure is not None and not isinstance(model.failure, InsufficientMemoryError)
        self._kept[model] = _Kept(model, phase, needs_look=failed or model.memory_bytes is None)
        self.changed()

    async def let_go(self, model: ServedModel) -> None:
        """Leave it as it is, once nothing is under way with it. Without effect on a model that is not kept."""
        kept = self._kept.get(model)
        if kept is None:
            return
        if kept.task is not None:
            if kept.phase is Phase.OPENING:
                kept.task.cancel()
            await asyncio.gather(kept.task, return_exceptions=True)
        self._kept.pop(model, None)
        self.changed()

    def give_another_try(self, model: ServedModel) -> bool:
        """End the rest of a model that was refused or did not load: what it failed for may be different now.

        False where there is nothing to end.
        """
        kept = self._kept.get(model)
        if kept is None or kept.phase is not Phase.OUT or model.state is not ModelState.UNAVAILABLE:
            return False
        kept.failures = 0
        model.try_again()
        self.changed()
        return True

    def changed(self) -> None:
        if self._kept and not self._is_due and not self._closed:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._act)

    async def close(self) -> None:
        """Give up what is being opened, wait for what is being closed. The models are their owner's to close."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = []
        for kept in self._kept.values():
            if kept.task is not None:
                tasks.append(kept.task)
                if kept.phase is Phase.OPENING:
                    kept.task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # The plan

    def _act(self) -> None:
        self._is_due = False
        if self._closed:
            return
        for kept in self._kept.values():
            if kept.phase is Phase.RESIDENT and kept.model.state is ModelState.UNAVAILABLE:
                # Its workers were given up. What is left of it goes; a later request tries anew.
                self._begin(kept, Phase.CLOSING, self._unload(kept, "its workers were lost"))
        now = time.monotonic()
        limits = ResidencyLimits(self.room_bytes, self.settings.swap_after_seconds, self.settings.min_resident_seconds)
        plan = plan_residency(now, self._standings(), limits)
        doubtful = [self._kept[model] for model in plan.made_room_for if not self._kept[model].looked_into]
        if doubtful:
            # What was known of them is from an earlier time: their files may have been damaged since.
            for kept in doubtful:
                kept.needs_look = True
            plan = plan_residency(now, self._standings(), limits)
        self._do(plan)

    def _standings(self) -> list[Standing[ServedModel]]:
        room_bytes = self.room_bytes
        return [_standing(kept, room_bytes) for kept in self._kept.values()]

    def _do(self, plan: Plan[ServedModel]) -> None:
        for refusal in plan.refuse:
            self._refuse(refusal)
        for model in plan.resume:
            model.admission.resume()
        for model in plan.pause:
            model.admission.pause()
        for model in plan.unload:
            model.admission.pause()
            if model in plan.swaps:
                model.swaps_total += 1
            self._begin(self._kept[model], Phase.CLOSING, self._unload(self._kept[model], _reason(plan, model)))
        for model in plan.open:
            model.loading()
            self._begin(self._kept[model], Phase.OPENING, self._open(self._kept[model]))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if plan.again_at_seconds is not None:
            delay_seconds = max(0.0, plan.again_at_seconds - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay_seconds, self.changed)

    def _begin(self, kept: _Kept, phase: Phase, work: Awaitable[None]) -> None:
        kept.phase = phase
        kept.task = asyncio.ensure_future(work)

    async def _open(self, kept: _Kept) -> None:
        model = kept.model
        if kept.needs_look:
            error = await self._look(model)
            if error is None:
                kept.needs_look, kept.looked_into = False, True
                kept.phase = Phase.OUT
                model.try_again()  # and the plan says when, its size being known
                self.changed()
                return
        else:
            _log.info("loading model %s: it is asked for", model.name)
            error = await self._open_model(model)
        if error is None:
            kept.failures, kept.needs_all = 0, False
            kept.phase = Phase.RESIDENT
        else:
            kept.phase = Phase.OUT
            self._open_failed(kept, error)
        self.changed()

    def _open_failed(self, kept: _Kept, error: BaseException) -> None:
        model = kept.model
        others = any(other.phase is not Phase.OUT for other in self._kept.values() if other is not kept)
        if isinstance(error, InsufficientMemoryError) and others and not kept.needs_all:
            # It knows better than the estimate: next to nobody it may fit.
            _log.warning("model %s waits for the others to make room: %s", model.name, error)
            kept.needs_all = kept.looked_into = True
            model.try_again()
            return
        kept.failures += 1
        kept.needs_all, kept.needs_look, kept.looked_into = False, True, False
        rest_seconds = min(
            self.settings.reload_retry_seconds * 2 ** (kept.failures - 1), self.settings.reload_retry_seconds_max
        )
        _log.error(
            "model %s did not load: %s; it is tried again after %g s when it is asked for",
            model.name,
            cause_for_log(error),
            rest_seconds,
        )
        model.failed(error, retry_after_seconds=rest_seconds)

    async def _unload(self, kept: _Kept, reason: str) -> None:
        model = kept.model
        await model.measure()
        self._warn_of_excess(model)
        await model.unload()
        _log.info("unloaded model %s: %s", model.name, reason)
        kept.phase, kept.looked_into = Phase.OUT, False
        self.changed()

    def _warn_of_excess(self, model: ServedModel) -> None:
        if model.measured_bytes > self.room_bytes >= model.estimated_bytes:
            _log.warning(
                "model %s took %s, and %s are there for models that are loaded on demand: it is loaded alone from now "
                "on — raise residency.model_memory_gb, or lower its max_kv_cache_capacity or max_batch_size",
                model.name,
                mib(model.measured_bytes),
                mib(self.room_bytes),
            )

    def _refuse(self, refusal: Refusal[ServedModel]) -> None:
        model = refusal.model
        model.failed(
            InsufficientMemoryError(does_not_fit(model.name, refusal.needed_bytes, refusal.room_bytes)),
            said=f"The model does not fit: it needs {mib(refusal.needed_bytes)} of memory, and "
            f"{mib(max(0, refusal.room_bytes))} are there for it.",
            retry_after_seconds=self.settings.reload_retry_seconds_max,
        )
        _log.error("%s", model.failure)


def does_not_fit(name: str, needed_bytes: int, room_bytes: int) -> str:
    return (
        f"model {name} needs {mib(needed_bytes)} of memory and {mib(max(0, room_bytes))} are there for models that are "
        "loaded on demand — raise residency.model_memory_gb, make another model on_demand, or lower its "
        "max_kv_cache_capacity or max_batch_size"
    )


def _reason(plan: Plan[ServedModel], model: ServedModel) -> str:
    """Why it is unloaded."""
    if model not in plan.swaps:
        return "idle for longer than its idle_timeout_seconds"
    asked = plan.swaps[model]
    return "the models together take more than there is" if asked is None else f"room for {asked.name}"


def _counted_bytes(model: ServedModel, room_bytes: int) -> int | None:
    """What it counts as: a model that has run in this room fits into it, however the measurement came out.

    It is refused for what it is estimated at alone; what it was measured at beyond the room makes it the only one.
    """
    if model.memory_bytes is None:
        return None
    return max(model.estimated_bytes, min(model.measured_bytes, max(0, room_bytes)))


def _standing(kept: _Kept, room_bytes: int) -> Standing[ServedModel]:
    model = kept.model
    admission = model.admission
    memory_bytes = None if kept.needs_all else _counted_bytes(model, room_bytes)
    is_on_its_way = kept.phase in (Phase.OUT, Phase.OPENING)
    if is_on_its_way and not kept.needs_all and (kept.needs_look or memory_bytes is None):
        memory_bytes = 0  # nobody makes room for what may not load at all
    return Standing(
        model,
        kept.phase,
        memory_bytes,
        admission.running,
        admission.waiting_since_seconds,
        model.resident_since_seconds,
        max(admission.last_used_seconds, model.resident_since_seconds),
        model.spec.idle_timeout_seconds,
        admission.is_paused,
    )
