"""Models as clients see them: configured by name, loading, ready, degraded, unavailable or unloaded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum

from edgellm.errors import ModelLoadingError, ModelUnavailableError, WorkerFailedError
from edgellm.parsing.output_style import OutputStyle
from edgellm.runtime.answer_plan import AnswerPlan, plan_answer
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import ChatPrompt
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.admission import Admission
from edgellm.serving.lane import Lane
from edgellm.serving.load_failure import UNAVAILABLE, cause_for_clients
from edgellm.serving.model_spec import LoadProgress, ModelSpec, OpenedModel
from edgellm.serving.prefix_index import PrefixIndex
from edgellm.serving.sampling_defaults import SamplingDefaults
from edgellm.serving.settings import ServingSettings


class ModelState(Enum):
    LOADING = "loading"
    READY = "ready"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"
    UNLOADED = "unloaded"


class ModelEvent(Enum):
    LOAD = "load"  # a request asks for a model that is not in memory
    OPENED = "opened"  # every lane answers
    LANE_BACK = "lane back"  # it answers again, others are still missing
    RESTARTING = "restarting"  # no lane answers, and one is coming back
    LANE_LOST = "lane lost"  # others still answer
    LOST = "lost"  # no lane answers, or loading failed
    UNLOAD = "unload"
    CLOSE = "close"


_ALIVE = (ModelState.READY, ModelState.DEGRADED)

TRANSITIONS: Mapping[tuple[ModelState, ModelEvent], ModelState] = {
    (ModelState.UNLOADED, ModelEvent.LOAD): ModelState.LOADING,
    (ModelState.UNAVAILABLE, ModelEvent.LOAD): ModelState.LOADING,
    (ModelState.LOADING, ModelEvent.OPENED): ModelState.READY,
    (ModelState.DEGRADED, ModelEvent.OPENED): ModelState.READY,
    (ModelState.LOADING, ModelEvent.LANE_BACK): ModelState.DEGRADED,
    (ModelState.DEGRADED, ModelEvent.LANE_BACK): ModelState.DEGRADED,
    (ModelState.LOADING, ModelEvent.LOST): ModelState.UNAVAILABLE,
    (ModelState.UNLOADED, ModelEvent.LOST): ModelState.UNAVAILABLE,
    **{(state, ModelEvent.RESTARTING): ModelState.LOADING for state in _ALIVE},
    **{(state, ModelEvent.LANE_LOST): ModelState.DEGRADED for state in _ALIVE},
    **{(state, ModelEvent.LOST): ModelState.UNAVAILABLE for state in _ALIVE},
    **{(state, ModelEvent.UNLOAD): ModelState.UNLOADED for state in ModelState},
    **{(state, ModelEvent.CLOSE): ModelState.UNLOADED for state in ModelState},
}


class ServedModel:
    """One configured model with its state and, once open, its lanes and their admission.

    ``on_change`` is called when its work or its lanes changed. A model that ``is_late`` came by a new configuration.
    """

    def __init__(
        self,
        spec: ModelSpec,
        settings: ServingSettings,
        *,
        is_late: bool = False,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.spec = spec
        self.state = ModelState.UNLOADED if spec.on_demand else ModelState.LOADING
        self.progress = LoadProgress("waiting")
        self.failure: BaseException | None = None
        self.lanes: tuple[Lane, ...] = ()
        self.sampling = SamplingDefaults().overlaid(spec.sampling)
        self.settings = spec.serving or settings
        self.admission = Admission(self.settings, on_change=on_change)
        self.prefixes = PrefixIndex()
        self.openings_total = 0
        self.lanes_lost_total = 0
        self.lanes_restarted_total = 0
        self.swaps_total = 0
        self.workers_killed_total = 0
        self._uses = 0
        self._unused = asyncio.Event()
        self._unused.set()
        self.memory_bytes: int | None = None
        """What it takes at most: estimated, or measured where that was more; None is not known."""
        self.resident_since_seconds = 0.0
        self.estimated_bytes = 0
        self.measured_bytes = 0
        self._said = UNAVAILABLE
        self._retry_at_seconds = 0.0
        self.is_late = is_late
        self._on_change = on_change
        self._generation_config: Mapping[str, object] = {}
        self._last_lane: Lane | None = None
        self._lanes_coming_back = 0
        self._lanes_given_up = 0
        self._close_lanes: Callable[[], Awaitable[int]] | None = None
        self._measure: Callable[[], int | None] | None = None
        self._log_level: str | None = None  # None: as it was opened
        self._log_at: Callable[[str], None] | None = None
        self._closed = False
        self._expect_slots()

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def holds_requests(self) -> bool:
        """While it is not open its requests wait in its queue, rather than being sent away."""
        return self.spec.on_demand or self.is_late

    @property
    def counts_for_readiness(self) -> bool:
        """Who is sent elsewhere while it is not open would wait in vain for one that only requests open."""
        has_come = not self.is_late or self.openings_total > 0
        return self.spec.required and not self.spec.on_demand and has_come

    def apply(self, event: ModelEvent) -> None:
        self.state = TRANSITIONS[self.state, event]

    def reconfigure(self, spec: ModelSpec, settings: ServingSettings) -> None:
        """Take on what can change while lanes stay as they are."""
        self.spec = spec
        self.settings = self.admission.settings = spec.serving or settings
        self._lay_sampling()
        self._expect_slots()

    def begin_use(self) -> None:
        """A request is with it, in whatever state, and it is not closed under it until ``end_use``."""
        self._uses += 1
        self._unused.clear()

    def end_use(self) -> None:
        self._uses -= 1
        if self._uses == 0:
            self._unused.set()

    async def unused(self) -> None:
        """Return once no request is with it."""
        await self._unused.wait()

    @property
    def uses(self) -> int:
        return self._uses

    def loading(self) -> None:
        """It is being opened, for the first time or again."""
        self.apply(ModelEvent.LOAD)
        self.failure = None
        self.progress = LoadProgress("waiting")
        self.admission.reopen()

    def opened(self, opened: OpenedModel) -> None:
        self.lanes = tuple(opened.lanes)
        self._last_lane = self.lanes[0]
        self._close_lanes = opened.close
        self._measure = opened.memory_bytes
        self._generation_config = opened.generation_config
        self._lay_sampling()
        self.openings_total += 1
        self.resident_since_seconds = time.monotonic()
        self.failure = None
        self.apply(ModelEvent.OPENED)
        self.admission.resume()
        for lane in self.lanes:
            self.admission.add_lane(lane, _slots_of(lane.capabilities))
        self._expect_slots()
        if opened.watch is not None:
            opened.watch(self)
        self._log_at = opened.log_at
        if self._log_level is not None:
            self.log_at(self._log_level)

    def log_at(self, level: str) -> None:
        """The least severe level that its processes log, also those that are started later."""
        self._log_level = level
        if self._log_at is not None:
            self._log_at(level)

    def failed(self, error: BaseException, *, said: str = "", retry_after_seconds: float = 0.0) -> None:
        """It cannot be opened: whoever waits for it is turned away and told what is ``said``, else the cause."""
        self.failure = error
        self._said = said or cause_for_clients(error)
        self._retry_at_seconds = time.monotonic() + retry_after_seconds
        self.apply(ModelEvent.LOST)
        self.admission.close(self._unavailable)

    @property
    def may_be_tried_again(self) -> bool:
        """It is opened on demand, failed, and has rested since."""
        failed = self.state is ModelState.UNAVAILABLE and self.spec.on_demand and not self._closed
        return failed and time.monotonic() >= self._retry_at_seconds

    def try_again(self) -> None:
        """Let requests wait for it once more."""
        self.apply(ModelEvent.UNLOAD)
        self.admission.reopen()

    async def measure(self) -> None:
        """Bring ``memory_bytes`` up to date."""
        if self._measure is None:
            return
        measured = await asyncio.to_thread(self._measure)
        if measured is not None:
            self.measured_bytes = max(self.measured_bytes, measured)
            self.memory_bytes = max(self.estimated_bytes, self.measured_bytes)

    def estimated(self, estimated_bytes: int) -> None:
        """What it may grow to: it counts as much from its start, since what it was given fills up as it is used."""
        self.estimated_bytes = estimated_bytes
        self.memory_bytes = max(self.estimated_bytes, self.measured_bytes)

    # LaneObserver

    def lane_lost(self, lane: Lane, *, is_coming_back: bool = False) -> None:
        """A lane does not answer any more: nothing new goes to it, and what it runs ends by itself."""
        self.lanes = tuple(other for other in self.lanes if other is not lane)
        self.admission.remove_lane(lane)
        self.lanes_lost_total += 1
        self._lanes_coming_back += is_coming_back
        self._lane_is_missing()

    def lane_back(self, lane: Lane) -> None:
        self.lanes_restarted_total += 1
        self._lanes_coming_back -= 1
        self.lanes = (*self.lanes, lane)
        self._last_lane = lane
        self.admission.add_lane(lane, _slots_of(lane.capabilities))
        is_whole = self._lanes_coming_back == 0 and not self._lanes_given_up
        self.apply(ModelEvent.OPENED if is_whole else ModelEvent.LANE_BACK)

    def lane_given_up(self) -> None:
        self._lanes_coming_back -= 1
        self._lanes_given_up += 1
        self._lane_is_missing()

    def _lane_is_missing(self) -> None:
        if self.lanes:
            self.apply(ModelEvent.LANE_LOST)
        elif self._lanes_coming_back:
            if self.state is not ModelState.LOADING:
                self.apply(ModelEvent.RESTARTING)
        else:
            self.failed(WorkerFailedError(f"the workers of {self.name} were lost"), said=UNAVAILABLE)
        self._on_change()

    async def unload(self) -> None:
        """Give its lanes up; requests that wait for it go on waiting. Returns once their memory is free."""
        if self.state is not ModelState.UNAVAILABLE:
            self.apply(ModelEvent.UNLOAD)
        await self._release_lanes()

    async def close(self) -> None:
        """Release every lane once, for good. Idempotent."""
        self._closed = True
        self.apply(ModelEvent.CLOSE)
        self.admission.close(self._unavailable)
        await self._release_lanes()

    async def _release_lanes(self) -> None:
        lanes, self.lanes = self.lanes, ()
        for lane in lanes:
            self.admission.remove_lane(lane)
        self._lanes_coming_back = self._lanes_given_up = 0
        self._measure = None
        close_lanes, self._close_lanes = self._close_lanes, None
        if close_lanes is not None:
            self.workers_killed_total += await close_lanes()
        for lane in lanes:
            await lane.close()

    @property
    def is_alive(self) -> bool:
        """It can take a request."""
        return self.state in _ALIVE

    @property
    def capabilities(self) -> Capabilities | None:
        return self._last_lane.capabilities if self._last_lane is not None else None

    @property
    def can_encode(self) -> bool:
        """What it can do is known, and prompts can be prepared for it, even where it is not in memory."""
        if self.lanes or not self.holds_requests:
            return True
        # A native model's tokenizer is in this process; a TensorRT one's may have to be asked.
        return self._last_lane is not None and self._last_lane.capabilities.runtime == "native"

    def require_lane(self) -> Lane:
        """A lane to ask what the model can do and to encode with, even while its replacement is on the way.

        Raises ModelLoadingError or ModelUnavailableError while the model cannot take a request.
        """
        if self.lanes:
            return self.lanes[0]
        is_coming = self.state is ModelState.LOADING or (self.state is ModelState.UNLOADED and self.holds_requests)
        if self._closed or not is_coming:
            raise self._unavailable()
        if self._last_lane is None:
            raise ModelLoadingError(
                f"The model is still loading ({self.progress.stage}).",
                retry_after_seconds=self.settings.loading_retry_after_seconds,
            )
        return self._last_lane

    @property
    def may_take_media(self) -> bool:
        """In a chat; True for one of which it is not known yet."""
        if self.spec.kind not in ("auto", "chat"):
            return False
        return self.capabilities is None or len(self.capabilities.input_modalities) > 1

    def require_capabilities(self) -> Capabilities:
        """Raises ModelLoadingError or ModelUnavailableError while the model cannot take a request."""
        return self.require_lane().capabilities

    def plan(self, prompt: ChatPrompt, params: SamplingParams, *, guide_asked_as: str = "") -> AnswerPlan:
        """What a chat request's tools, guide and thinking mean for this model; ``guide_asked_as`` names its field."""
        capabilities = self.require_capabilities()
        return plan_answer(
            prompt,
            params,
            capabilities,
            self.output_style(capabilities),
            auto_tool_choice=self.spec.enable_auto_tool_choice,
            guide_asked_as=guide_asked_as,
        )

    def output_style(self, capabilities: Capabilities) -> OutputStyle:
        """How the model writes, read by the parsers that the operator chose."""
        return capabilities.output_style.chosen(self.spec.reasoning_parser, self.spec.tool_call_parser)

    def _lay_sampling(self) -> None:
        self.sampling = SamplingDefaults().with_generation_config(self._generation_config).overlaid(self.spec.sampling)

    def _expect_slots(self) -> None:
        waits_for_opening = self.spec.on_demand or (self.is_late and not self.openings_total)
        slots = max(self.spec.slots_expected, self.admission.capacity)
        self.admission.slots_when_open = slots if waits_for_opening else 0

    @property
    def retry_after_seconds(self) -> float | None:
        """When it is worth asking again while it is not open; None where nothing will open it by itself."""
        if self.state is ModelState.UNAVAILABLE and not self.spec.on_demand:
            return None
        rest_seconds = self._retry_at_seconds - time.monotonic()
        return rest_seconds if rest_seconds > 0 else self.settings.loading_retry_after_seconds

    def _unavailable(self) -> ModelUnavailableError:
        return ModelUnavailableError(self._said, retry_after_seconds=self.retry_after_seconds)


def _slots_of(capabilities: Capabilities) -> int:
    takes_several = capabilities.in_flight_batching or capabilities.only_speaks
    return capabilities.max_batch_size if takes_several else 1
