"""EngineClient: the one way from a wire protocol to the models of this process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from edgellm.errors import (
    ConfigError,
    DuplicateRequestIdError,
    EdgeLLMError,
    KeyRevokedError,
    ModelNotFoundError,
    RequestError,
    ShuttingDownError,
)
from edgellm.runtime.generation import GenerationRequest
from edgellm.serving.admission import Lease
from edgellm.serving.counters import Counters
from edgellm.serving.error_frames import error_frames
from edgellm.serving.generation import CancelCause, Generation
from edgellm.serving.lane import Lane
from edgellm.serving.model import LoadProgress, ModelEvent, ModelSpec, OpenedModel, ServedModel
from edgellm.serving.priority import Priority
from edgellm.serving.records import Records, RecordSettings
from edgellm.serving.report import Outcome, RequestReport, RequestTexts, outcome_of_error
from edgellm.serving.settings import ServingSettings
from edgellm.serving.warm_up import produce_a_token

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GenerationJob:
    """What a client asks of one model: ``choices`` sequences of each prompt.

    ``client`` is whom fairness counts by. ``request_id`` is unique among what that client has running. ``slots_max``
    is how many sequences may run at a time; None: as many as there are slots. ``route`` and ``metadata`` (what the
    client wants to find it by) are for its record.
    """

    model: str
    prompts: Sequence[GenerationRequest]
    request_id: str
    client: str = ""
    choices: int = 1
    slots_max: int | None = None
    route: str = ""
    priority: Priority = Priority.NORMAL
    metadata: Mapping[str, str] = field(default_factory=dict)


class EngineClient:
    """Models with their lanes, admission in front of them, and what is running. Used from one event loop."""

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        settings: ServingSettings | None = None,
        records: RecordSettings | None = None,
    ) -> None:
        self.settings = settings or ServingSettings()
        self._models = {spec.name: ServedModel(spec, self.settings) for spec in specs}
        if len(self._models) != len(specs):
            raise ConfigError("two models have the same name")
        self.counters = Counters(self._models, lambda: self.ready)
        self.records = None if records is None else Records(records, self.counters.count_records)
        self._running: dict[tuple[str, str], Generation | None] = {}
        self._revoked: set[tuple[str, str]] = set()  # of those, not started yet
        self._loads: list[asyncio.Task[None]] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False

    # Models

    @property
    def models(self) -> Sequence[ServedModel]:
        return tuple(self._models.values())

    def model(self, name: str) -> ServedModel:
        model = self._models.get(name)
        if model is None:
            raise ModelNotFoundError("There is no model of that name; GET /v1/models lists them.", param="model")
        return model

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def ready(self) -> bool:
        """Every required model has produced a token, and new requests are taken."""
        required = [model for model in self._models.values() if model.spec.required]
        return not self._draining and all(model.is_alive for model in required)

    @property
    def running_requests(self) -> int:
        return len(self._running)

    def start(self) -> None:
        """Begin to open every model; ``model.state`` and ``model.progress`` show how far it is."""
        loop = asyncio.get_running_loop()
        self._loads = [loop.create_task(self._open(model)) for model in self._models.values()]

    async def opened(self) -> None:
        """Return once no model is loading any more, whether it is ready or not."""
        await asyncio.gather(*self._loads)

    async def _open(self, model: ServedModel) -> None:
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
            model.failure = error
            model.apply(ModelEvent.LOST)
            if opened is not None and opened.close is not None:
                await opened.close()
            for lane in lanes:
                await lane.close()
            if isinstance(error, asyncio.CancelledError):
                raise
            # The reason of a required model is its owner's to say: it ends for it.
            if not isinstance(error, EdgeLLMError):
                _log.error("model %s did not load: %s", model.name, error_frames(error))
            elif not model.spec.required:
                _log.error("model %s did not load: %s", model.name, error)

    # Requests

    async def generate(self, job: GenerationJob) -> Generation:
        """Return once a lane has accepted the job: whatever can be refused has been by then.

        A caller that is cancelled leaves nothing behind: a queued job never starts, an accepted one is cancelled.
        """
        report = RequestReport(
            request_id=job.request_id,
            model=job.model if job.model in self._models else "",
            choices=len(job.prompts) * job.choices,
            arrived_seconds=time.monotonic(),
            client=job.client,
            route=job.route,
            priority=job.priority,
            metadata=job.metadata,
        )
        if self.records is not None and self.records.include_text:
            report.texts = RequestTexts([prompt for prompt in job.prompts for _ in range(job.choices)])
        key = (job.client, job.request_id)
        try:
            if self._draining:
                raise self._shutting_down()
            if key in self._running:
                raise DuplicateRequestIdError("A request with this X-Request-ID is still running.")
            self._enter(key)
            try:
                generation = await self._start(job, report, key)
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

    async def count_prompt_tokens(self, model_name: str, request: GenerationRequest) -> int:
        """How many tokens the prompt has for that model. Takes no slot and no place in the queue."""
        if self._draining:
            raise self._shutting_down()
        return await self.model(model_name).require_lane().count_tokens(request)

    async def _start(self, job: GenerationJob, report: RequestReport, key: tuple[str, str]) -> Generation:
        model = self.model(job.model)
        lane = model.require_lane()
        requests: list[GenerationRequest] = []
        for prompt in job.prompts:
            encoded = await lane.encode(prompt)
            if encoded.prompt_token_ids is not None and not encoded.prompt_token_ids:
                raise RequestError("The prompt is empty: it has no tokens.", param="prompt")
            requests += (_choice(encoded, number) for number in range(job.choices))
        report.entered_queue_seconds = time.monotonic()
        leases = await model.admission.acquire(job.client, min(len(requests), job.slots_max or len(requests)))
        report.granted_seconds = time.monotonic()
        generation = Generation(
            requests,
            leases,
            report,
            lane.capabilities,
            token_gap=self.counters.token_gap(model.name),
            on_end=lambda ended: self._ended(ended, key),
            acquire=lambda: _one_lease(model, job.client),
        )
        self._running[key] = generation
        if key in self._revoked:
            generation.cancel(CancelCause.KEY_REVOKED)
        if self.settings.request_timeout_seconds is not None:
            generation.cancel_after(self.settings.request_timeout_seconds)
        return generation

    def end_client(self, client: str) -> None:
        """End what waits and what runs of a client whose key was revoked, within one step."""
        error = KeyRevokedError("The API key of this request was revoked.")
        for model in self._models.values():
            model.admission.turn_away(client, error)
        for key, generation in list(self._running.items()):
            if key[0] != client:
                continue
            if generation is None:
                self._revoked.add(key)
            else:
                generation.cancel(CancelCause.KEY_REVOKED)

    def _enter(self, key: tuple[str, str]) -> None:
        self._running[key] = None
        self._idle.clear()

    def _leave(self, key: tuple[str, str]) -> None:
        del self._running[key]
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
        for model in self._models.values():
            model.admission.close(self._shutting_down)
        try:
            async with asyncio.timeout(limit_seconds):
                await self._idle.wait()
        except TimeoutError:
            for generation in [running for running in self._running.values() if running is not None]:
                generation.cancel(CancelCause.SHUTTING_DOWN)
            await self._idle.wait()

    async def close(self) -> None:
        """Drain without waiting, then release every lane once. Idempotent."""
        await self.drain(0)
        for load in self._loads:
            load.cancel()
        await asyncio.gather(*self._loads, return_exceptions=True)
        for model in self._models.values():
            await model.close()
        if self.records is not None:
            await asyncio.to_thread(self.records.close)


def _choice(encoded: GenerationRequest, number: int) -> GenerationRequest:
    """Choices with a seed differ from each other and are each repeatable."""
    if number == 0 or encoded.params.seed is None:
        return encoded
    return replace(encoded, params=replace(encoded.params, seed=(encoded.params.seed + number) % 2**64))


async def _one_lease(model: ServedModel, client: str) -> Lease:
    (lease,) = await model.admission.acquire(client)
    return lease
