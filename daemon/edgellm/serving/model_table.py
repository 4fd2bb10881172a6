"""ModelTable: the models that are served by name, how they come, are replaced, and go, without a request being lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from edgellm.errors import ConfigError, EdgeLLMError, InsufficientMemoryError, ModelNotFoundError, UnusableOutputError
from edgellm.serving.lane import Lane
from edgellm.serving.load_failure import cause_for_log, damaged_weights
from edgellm.serving.model import ServedModel
from edgellm.serving.model_spec import LoadProgress, ModelSpec, OpenedModel
from edgellm.serving.residency import Residency, does_not_fit
from edgellm.serving.settings import ServingSettings
from edgellm.serving.warm_up import produce_a_token

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """A model on its way in. Once ``work`` is done, ``model.failure`` says what it could not be loaded for."""

    model: ServedModel
    work: asyncio.Task[None]


@dataclass(frozen=True, slots=True)
class ModelChange:
    """What a new configuration does to a model, in words, and what is loaded for it."""

    name: str
    what: str
    load: ModelLoad | None = None


class ModelTable:
    """``listed`` is what clients see, by name. Used from one event loop."""

    def __init__(self, specs: Sequence[ModelSpec], settings: ServingSettings) -> None:
        check_names(specs)
        self._settings = settings
        self.residency = Residency(settings, self._estimate, self._open, self._taken_bytes)
        self.listed = {spec.name: self._made(spec) for spec in specs}
        self.aliases = _aliases(specs)
        # What each name is to be: the listed model, or the one that is on its way to take its place.
        self._targets = dict(self.listed)
        self._retiring: dict[ServedModel, asyncio.Task[None]] = {}
        self._work: dict[ServedModel, asyncio.Task[None]] = {}
        self._first_loads: list[asyncio.Task[None]] = []
        self._preparations: list[asyncio.Task[None]] = []
        self._estimating = asyncio.Lock()
        self._closed = False
        self.workers_killed_total = 0

    def find(self, name: str) -> ServedModel:
        model = self.listed.get(self.aliases.get(name, name))
        if model is None:
            raise ModelNotFoundError("There is no model of that name; GET /v1/models lists them.", param="model")
        return model

    @property
    def all(self) -> Sequence[ServedModel]:
        """Also those that are on their way in or out."""
        return list(dict.fromkeys([*self.listed.values(), *self._targets.values(), *self._retiring, *self._work]))

    def log_at(self, level: str) -> None:
        for model in self.all:
            model.log_at(level)

    # From the start to the end

    def start(self) -> None:
        self.residency.start()
        always = [model for model in self.listed.values() if not model.spec.on_demand]
        loads = [self._do(model, self._open_for_good(model)) for model in always]

        async def prepare(model: ServedModel) -> None:
            await asyncio.wait(loads) if loads else None
            await self._prepare(model)

        on_demand = [model for model in self.listed.values() if model.spec.on_demand]
        self._preparations = [self._do(model, prepare(model)) for model in on_demand]
        self._first_loads = [*loads, *self._preparations]

    @property
    def ready(self) -> bool:
        """Every required model that is to stay has produced a token, and the others can be asked for."""
        required = [model for model in self.listed.values() if model.counts_for_readiness]
        return all(model.is_alive for model in required) and all(task.done() for task in self._preparations)

    async def opened(self) -> None:
        """Return once no model of the start is loading any more, whether it is ready or not."""
        if self._first_loads:
            await asyncio.wait(self._first_loads)  # also those that a new configuration took away

    async def close(self) -> None:
        """Release every lane once. Idempotent."""
        if self._closed:
            return
        self._closed = True
        models = self.all
        tasks = [*self._work.values(), *self._retiring.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.residency.close()
        await asyncio.gather(*(model.close() for model in models))
        self.workers_killed_total += sum(model.workers_killed_total for model in models)

    # A new configuration

    def reconfigure(self, specs: Sequence[ModelSpec], settings: ServingSettings) -> Sequence[ModelChange]:
        """Begin to serve these models instead. What is taken away finishes what it has; nothing waits for it here.

        Raises ConfigError, and changes nothing, when two models share a name.
        """
        check_names(specs)
        self._settings = self.residency.settings = settings
        for model in self.all:
            model.reconfigure(model.spec, settings)
        changes = [self._remove(name) for name in list(self._targets) if name not in {spec.name for spec in specs}]
        for spec in specs:
            changes += self._take(spec)
        # In the order of the configuration, in the same object: counters read it.
        in_order = {spec.name: self.listed[spec.name] for spec in specs}
        self.listed.clear()
        self.listed.update(in_order)
        self.aliases = _aliases(specs)
        self.residency.changed()
        return changes

    def _take(self, spec: ModelSpec) -> list[ModelChange]:
        target = self._targets.get(spec.name)
        if target is None:
            what = "added; it is loaded when asked for" if spec.on_demand else "added, and loading"
            return [ModelChange(spec.name, what, self._add(spec))]
        listed = self.listed[spec.name]
        if _alike(target.spec, spec):
            return self._adjust(target, spec)
        if listed is not target:
            self._abandon(target)
        if _alike(listed.spec, spec):
            self._targets[spec.name] = listed
            return [*self._adjust(listed, spec), ModelChange(spec.name, "stays as it is; its replacement is given up")]
        new = self._made(spec, is_late=True)
        self._targets[spec.name] = new
        load = ModelLoad(new, self._do(new, self._replace(listed, new)))
        return [ModelChange(spec.name, "being replaced; what it runs finishes first", load)]

    def _adjust(self, model: ServedModel, spec: ModelSpec) -> list[ModelChange]:
        changed = _changed_settings(model.spec, spec)
        model.reconfigure(spec, self._settings)
        changes = [ModelChange(spec.name, f"changed: {', '.join(changed)}")] if changed else []
        if model.failure is not None and not spec.on_demand and model not in self._work:
            load = ModelLoad(model, self._do(model, self._open_again(model)))
            changes.append(ModelChange(spec.name, "loading again, since it is unavailable", load))
        if self.residency.give_another_try(model):
            changes.append(ModelChange(spec.name, "tried again when it is asked for, since it is unavailable"))
        return changes

    def _add(self, spec: ModelSpec) -> ModelLoad:
        model = self._made(spec, is_late=True)
        self.listed[spec.name] = self._targets[spec.name] = model
        return ModelLoad(model, self._do(model, self._prepare(model) if spec.on_demand else self._open_for_good(model)))

    def _remove(self, name: str) -> ModelChange:
        target, model = self._targets.pop(name), self.listed.pop(name)
        if target is not model:
            self._abandon(target)
        self._retire(model)
        return ModelChange(name, f"removed; {model.uses} request(s) finish first" if model.uses else "removed")

    async def _replace(self, old: ServedModel, new: ServedModel) -> None:
        """Open the new one first where memory allows; else the old one finishes first, and requests wait."""
        name = new.name
        error = await self._estimate(new)
        if error is None and self._fits_beside(old, new):
            error = await self._open(new)
            if error is None:
                self.listed[name] = new
                self._retire(old)
                return
            if isinstance(error, InsufficientMemoryError):
                error = None
        if error is not None:
            _log_failure(new, error)
            _log.error("model %s stays as it was before", name)
            self._targets[name] = old
            new.failure = error
            await new.close()
            return
        self.listed[name] = new
        await asyncio.shield(self._retire(old))
        if new.spec.on_demand:
            self.residency.keep(new)
        else:
            await self._open_for_good(new)

    def _fits_beside(self, old: ServedModel, new: ServedModel) -> bool:
        if new.spec.on_demand or not old.is_alive or new.memory_bytes is None:
            return False
        return self.residency.held_bytes <= self.residency.room_bytes  # which leaves out what the new one will take

    def _retire(self, model: ServedModel) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._finish(model))
        self._retiring[model] = task
        return task

    async def _finish(self, model: ServedModel) -> None:
        """It is not listed any more: let what it has end, then close it."""
        await model.unused()
        await self._end(model)
        del self._retiring[model]
        _log.info("model %s is gone", model.name)

    def _abandon(self, model: ServedModel) -> None:
        """It was on its way in, and no request has seen it."""
        if model in self._work:
            self._work[model].cancel()
        self._retiring[model] = asyncio.get_running_loop().create_task(self._finish(model))

    async def _end(self, model: ServedModel) -> None:
        work = self._work.get(model)
        if work is not None:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        await self.residency.let_go(model)
        await model.close()
        self.workers_killed_total += model.workers_killed_total

    # Opening

    def _made(self, spec: ModelSpec, *, is_late: bool = False) -> ServedModel:
        return ServedModel(spec, self._settings, is_late=is_late, on_change=self.residency.changed)

    def _do(self, model: ServedModel, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._work[model] = task
        task.add_done_callback(lambda _: self._work.pop(model, None))
        return task

    def _taken_bytes(self) -> int:
        """What models take that stay."""
        return sum(model.memory_bytes or 0 for model in self.all if not model.spec.on_demand)

    async def _estimate(self, model: ServedModel) -> BaseException | None:
        try:
            if model.spec.estimate_bytes is not None:
                async with self._estimating:  # one at a time: each may be a process of its own
                    estimated_bytes = await model.spec.estimate_bytes()
                if estimated_bytes is not None:  # else what was measured before is the best that is known
                    model.estimated(estimated_bytes)
        except Exception as error:  # as with loading, it costs this model only
            return error
        return None

    async def _prepare(self, model: ServedModel) -> None:
        """An on-demand model can be asked for; one that cannot be loaded, or never will fit, is found out now."""
        error = await self._estimate(model)
        needed_bytes = model.memory_bytes or 0
        if error is None and needed_bytes > self.residency.room_bytes:
            error = InsufficientMemoryError(does_not_fit(model.name, needed_bytes, self.residency.room_bytes))
        if error is not None:
            model.failed(error)
            if not model.spec.required or model.is_late:
                _log_failure(model, error)
        self.residency.keep(model)

    async def _open_for_good(self, model: ServedModel) -> None:
        error = await self._open(model)
        if error is None:
            return
        model.failed(error)
        # The reason of a required model is its owner's to say: it ends for it.
        if not isinstance(error, EdgeLLMError) or not model.spec.required or model.is_late:
            _log_failure(model, error)

    async def _open_again(self, model: ServedModel) -> None:
        await model.unload()
        model.loading()
        await self._open_for_good(model)

    async def _open(self, model: ServedModel) -> BaseException | None:
        """Open it until every lane has said something. Returns what it could not be opened for."""
        loop = asyncio.get_running_loop()

        def report(progress: LoadProgress) -> None:
            loop.call_soon_threadsafe(setattr, model, "progress", progress)

        opened: OpenedModel | None = None
        lanes: Sequence[Lane] = ()
        try:
            opened = await model.spec.open(report)
            lanes = opened.lanes
            model.progress = LoadProgress("warming up")
            await asyncio.gather(*(produce_a_token(lane) for lane in lanes))
            model.opened(opened)
        except (Exception, asyncio.CancelledError) as error:
            # Whatever a model's loading raises, it costs this model only; the daemon shows it and goes on.
            if opened is not None and opened.close is not None:
                await opened.close()
            for lane in lanes:
                await lane.close()
            if isinstance(error, asyncio.CancelledError):
                raise
            if isinstance(error, UnusableOutputError):
                return damaged_weights(error, model.name, model.spec.source)
            return error
        await model.measure()
        return None


def check_names(specs: Sequence[ModelSpec]) -> None:
    """Raises ConfigError when two models share a name or an alias."""
    seen: set[str] = set()
    for name in (name for spec in specs for name in (spec.name, *spec.aliases)):
        if name in seen:
            raise ConfigError(f'two models are called "{name}" — give each its own name and aliases')
        seen.add(name)


def _aliases(specs: Sequence[ModelSpec]) -> dict[str, str]:
    return {alias: spec.name for spec in specs for alias in spec.aliases}


def _alike(one: ModelSpec, other: ModelSpec) -> bool:
    """Their lanes are, so that the rest can change while they stay."""
    return one.made_from == other.made_from and one.on_demand == other.on_demand


# Fields of ModelSpec, and settings by the same names, that change while lanes stay.
_ADJUSTABLE = (
    *("required", "aliases", "idle_timeout_seconds", "sampling"),
    *("reasoning_parser", "tool_call_parser", "enable_auto_tool_choice"),
)
# Of ServingSettings: those that a model may have of its own.
_LIMITS = ("max_queued_requests", "queue_timeout_seconds", "request_timeout_seconds")


def _changed_settings(old: ModelSpec, new: ModelSpec) -> list[str]:
    changed = [name for name in _ADJUSTABLE if getattr(old, name) != getattr(new, name)]
    if old.serving is None or new.serving is None:
        return changed
    return changed + [name for name in _LIMITS if getattr(old.serving, name) != getattr(new.serving, name)]


def _log_failure(model: ServedModel, error: BaseException) -> None:
    _log.error("model %s did not load: %s", model.name, cause_for_log(error))
