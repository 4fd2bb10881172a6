"""EngineClient: the one way from a wire protocol to the models of this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from edgellm.errors import (
    DuplicateRequestIdError,
    EdgeLLMError,
    KeyRevokedError,
    RequestError,
    ShuttingDownError,
)
from edgellm.runtime.generation import GenerationRequest
from edgellm.serving.admission import Lease
from edgellm.serving.counters import Counters
from edgellm.serving.generation import CancelCause, Generation
from edgellm.serving.lane import Lane
from edgellm.serving.model import ServedModel
from edgellm.serving.model_spec import ModelSpec
from edgellm.serving.model_table import ModelChange, ModelTable
from edgellm.serving.prefix_index import PrefixAffinity
from edgellm.serving.priority import Priority
from edgellm.serving.records import Records, RecordSettings
from edgellm.serving.report import Outcome, RequestReport, RequestTexts, outcome_of_error
from edgellm.serving.settings import ServingSettings
from edgellm.serving.task import Task, check_task

Prompts = Callable[[ServedModel], Sequence[GenerationRequest]]
"""Makes them once it is known what the model can do. Raises RequestError."""
Fetch = Callable[[Sequence[GenerationRequest]], Awaitable[Sequence[GenerationRequest]]]
"""Gives them with the media that they bring, wherever those are. Raises RequestError."""


@dataclass(frozen=True, slots=True)
class GenerationJob:
    """What a client asks of one model, by its name or an alias: ``choices`` sequences of each prompt.

    ``client`` is whom fairness counts by. ``request_id`` is unique among what that client has running. ``slots_max``
    is how many sequences may run at a time; None: as many as there are slots. ``route`` and ``metadata`` (what the
    client wants to find it by) are for its record.
    """

    model: str
    prompts: Sequence[GenerationRequest] | Prompts
    request_id: str
    client: str = ""
    choices: int = 1
    slots_max: int | None = None
    route: str = ""
    priority: Priority = Priority.NORMAL
    metadata: Mapping[str, str] = field(default_factory=dict)
    task: Task = Task.TEXT
    fetch: Fetch | None = None


class EngineClient:
    """Models with their lanes, admission in front of them, and what is running. Used from one event loop."""

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        settings: ServingSettings | None = None,
        records: RecordSettings | None = None,
    ) -> None:
        self.settings = settings or ServingSettings()
        self.table = ModelTable(specs, self.settings)
        self.counters = Counters(self.table.listed, lambda: self.ready)
        self.records: Records | None = None
        self._take_records(records)
        self._running: dict[tuple[str, str], Generation | None] = {}
        self._model_of: dict[tuple[str, str], ServedModel] = {}
        self._revoked: set[tuple[str, str]] = set()  # of those, not started yet
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False
        self._cut_short: set[tuple[str, str]] = set()

    # Models

    @property
    def models(self) -> Sequence[ServedModel]:
        return tuple(self.table.listed.values())

    def model(self, name: str) -> ServedModel:
        """By its name or an alias. Raises ModelNotFoundError."""
        return self.table.find(name)

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def ready(self) -> bool:
        """Every required model can take a request, and new requests are taken.

        Models that are loaded on demand come when they are asked for, whatever state they are in.
        """
        return not self._draining and self.table.ready

    @property
    def running_requests(self) -> int:
        return len(self._running)

    def start(self) -> None:
        """Begin to open every model; ``model.state`` and ``model.progress`` show how far it is."""
        self.table.start()

    async def opened(self) -> None:
        """Return once no model of the start is loading any more, whether it is ready or not."""
        await self.table.opened()

    def reconfigure(
        self, specs: Sequence[ModelSpec], settings: ServingSettings, records: RecordSettings | None = None
    ) -> Sequence[ModelChange]:
        """Begin to serve these models instead, without losing a request. Raises ConfigError, and changes nothing."""
        changes = self.table.reconfigure(specs, settings)
        self.settings = settings
        self.counters.expect(self.table.listed)
        self._take_records(records)
        return changes

    def log_at(self, level: str) -> None:
        """The least severe level that worker processes log, of those that run and those that come."""
        self.table.log_at(level)

    def _take_records(self, settings: RecordSettings | None) -> None:
        if self.records is None:
            self.records = None if settings is None else Records(settings, self.counters.count_records)
        elif settings is None:
            self.records.finish()
            self.records = None
        else:
            self.records.change(settings)

    # Requests

    async def generate(self, job: GenerationJob) -> Generation:
        """Return once a lane has accepted the job: whatever can be refused has been by then.

        A caller that is cancelled leaves nothing behind: a queued job never starts, an accepted one is cancelled.
        """
        report = RequestReport(
            request_id=job.request_id,
            model="",
            choices=0,
            arrived_seconds=time.monotonic(),
            client=job.client,
            route=job.route,
            priority=job.priority,
            metadata=job.metadata,
        )
        key = (job.client, job.request_id)
        try:
            if self._draining:
                raise self._shutting_down()
            if key in self._running:
                raise DuplicateRequestIdError("A request with this X-Request-ID is still running.")
            model = self.model(job.model)
            report.model = model.name
            check_task(job.task, model.spec.kind)
            self._enter(key, model)
            try:
                generation = await self._start(model, job, report, key)
            except BaseException:
                self._leave(key)
                raise
        except asyncio.CancelledError:
            self._refused(report, Outcome.DISCONNECTED, "request_cancelled")
            raise
        except EdgeLLMError as error:
            self._refused(report, outcome_of_error(error), error.code)
            raise
        try:
            await generation.accepted()
        except asyncio.CancelledError:
            generation.cancel(CancelCause.CLIENT_LEFT)
            raise
        return generation

    async def count_prompt_tokens(self, model_name: str, prompt: Callable[[ServedModel], GenerationRequest]) -> int:
        """How many tokens the prompt has for that model. Takes no slot and no place in the queue.

        A model that was never open has to be for this, and what asks waits in its queue until it is.
        """
        if self._draining:
            raise self._shutting_down()
        model = self.model(model_name)
        check_task(Task.TEXT, model.spec.kind)
        model.begin_use()
        try:
            await _until_known(model, client="")
            return await model.require_lane().count_tokens(prompt(model))
        finally:
            model.end_use()

    async def _start(
        self, model: ServedModel, job: GenerationJob, report: RequestReport, key: tuple[str, str]
    ) -> Generation:
        report.entered_queue_seconds = time.monotonic()
        has_waited = await _until_known(model, job.client, job.priority)
        prompts = job.prompts(model) if callable(job.prompts) else job.prompts
        if job.fetch is not None:
            prompts = await job.fetch(prompts)
            report.media.update(each.kind for prompt in prompts for each in prompt.media)
        report.choices = len(prompts) * job.choices
        if self.records is not None and self.records.include_text:
            report.texts = RequestTexts([prompt for prompt in prompts for _ in range(job.choices)])
        lane, opening = model.require_lane(), model.openings_total
        requests = await _encoded(lane, prompts, job.choices)
        if not has_waited:
            report.entered_queue_seconds = time.monotonic()
        affinity = PrefixAffinity.of(requests[0], model.prefixes) if lane.capabilities.context_cache else None
        slots = min(len(requests), job.slots_max or len(requests))
        leases = await model.admission.acquire(
            job.client, slots, affinity, priority=job.priority, has_waited=has_waited
        )
        report.granted_seconds = time.monotonic()
        if model.openings_total != opening:  # it was loaded anew meanwhile, and may tokenise differently
            lane = leases[0].lane
            try:
                requests = await _encoded(lane, prompts, job.choices)
            except BaseException:
                for lease in leases:
                    lease.release()
                raise
        generation = Generation(
            requests,
            leases,
            report,
            lane.capabilities,
            token_gap=self.counters.token_gap(model.name),
            on_end=lambda ended: self._ended(ended, key),
            acquire=lambda: _one_lease(model, job),
        )
        self._running[key] = generation
        if key in self._revoked:
            generation.cancel(CancelCause.KEY_REVOKED)
        if model.settings.request_timeout_seconds is not None:
            generation.cancel_after(model.settings.request_timeout_seconds)
        return generation

    def end_client(self, client: str) -> None:
        """End what waits and what runs of a client whose key was revoked, within one step."""
        error = KeyRevokedError("The API key of this request was revoked.")
        for model in self.table.all:
            model.admission.turn_away(client, error)
        for key, generation in list(self._running.items()):
            if key[0] != client:
                continue
            if generation is None:
                self._revoked.add(key)
            else:
                generation.cancel(CancelCause.KEY_REVOKED)

    def _enter(self, key: tuple[str, str], model: ServedModel) -> None:
        self._running[key] = None
        self._model_of[key] = model
        model.begin_use()
        self._idle.clear()

    def _leave(self, key: tuple[str, str]) -> None:
        del self._running[key]
        self._model_of.pop(key).end_use()
        self._revoked.discard(key)
        if not self._running:
            self._idle.set()

    def _ended(self, generation: Generation, key: tuple[str, str]) -> None:
        self._leave(key)
        self._observe(generation.report)

    def _refused(self, report: RequestReport, outcome: Outcome, code: str) -> None:
        report.outcome = outcome
        report.error_code = code
        report.ended_seconds = time.monotonic()
        self._observe(report)

    def note_refused(self, client: str, request_id: str, route: str, outcome: Outcome, code: str) -> None:
        """Count a request of a known client that was refused before it became a job."""
        report = RequestReport(request_id, "", 0, time.monotonic(), client=client, route=route)
        self._refused(report, outcome, code)

    def _observe(self, report: RequestReport) -> None:
        self.counters.observe(report)
        if self.records is not None:
            self.records.keep(report)

    # Shutdown

    def _shutting_down(self) -> ShuttingDownError:
        return ShuttingDownError(
            "The server is shutting down.", retry_after_seconds=self.settings.shutdown_retry_after_seconds
        )

    async def drain(self, limit_seconds: float) -> None:
        """Take nothing new, let what runs finish for up to ``limit_seconds``, then cancel the rest. Idempotent."""
        self._draining = True
        for model in self.table.all:
            model.admission.close(self._shutting_down)
        try:
            async with asyncio.timeout(limit_seconds):
                await self._idle.wait()
        except TimeoutError:
            for key, generation in list(self._running.items()):
                if generation is not None:
                    self._cut_short.add(key)
                    generation.cancel(CancelCause.SHUTTING_DOWN)
            await self._idle.wait()

    @property
    def requests_cut_short(self) -> int:
        """Requests that were still running when the drain's time was over."""
        return len(self._cut_short)

    @property
    def workers_killed(self) -> int:
        """Workers that did not end when they were told to."""
        return self.table.workers_killed_total

    async def close(self) -> None:
        """Drain without waiting, then release every lane once. Idempotent."""
        await self.drain(0)
        await self.table.close()
        if self.records is not None:
            await asyncio.to_thread(self.records.close)


async def _until_known(model: ServedModel, client: str, priority: Priority = Priority.NORMAL) -> bool:
    """Wait in its queue until it is known what the model can do. Returns whether that took a wait."""
    if model.may_be_tried_again:
        model.try_again()
    if model.can_encode:
        return False
    for lease in await model.admission.acquire(client, priority=priority):
        lease.release(was_used=False)
    return True


async def _encoded(lane: Lane, prompts: Sequence[GenerationRequest], choices: int) -> list[GenerationRequest]:
    requests: list[GenerationRequest] = []
    for prompt in prompts:
        encoded = await lane.encode(prompt)
        if encoded.prompt_token_ids is not None and not encoded.prompt_token_ids:
            raise RequestError("The prompt is empty: it has no tokens.", param="prompt")
        requests += (_choice(encoded, number) for number in range(choices))
    return requests


def _choice(encoded: GenerationRequest, number: int) -> GenerationRequest:
    """Choices with a seed differ from each other and are each repeatable."""
    if number == 0 or encoded.params.seed is None:
        return encoded
    return replace(encoded, params=replace(encoded.params, seed=(encoded.params.seed + number) % 2**64))


async def _one_lease(model: ServedModel, job: GenerationJob) -> Lease:
    (lease,) = await model.admission.acquire(job.client, priority=job.priority, has_waited=True)
    return lease
