"""Models as clients see them: configured by name, loading, ready, degraded, unavailable or unloaded."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from edgellm.errors import ConfigError, ModelLoadingError, ModelUnavailableError
from edgellm.parsing.answer_parser import AUTO
from edgellm.parsing.output_style import OutputStyle, check_parser_names
from edgellm.runtime.answer_plan import AnswerPlan, plan_answer
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import ChatPrompt
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.admission import Admission
from edgellm.serving.lane import Lane
from edgellm.serving.sampling_defaults import SamplingDefaults
from edgellm.serving.settings import ServingSettings


class ModelState(Enum):
    LOADING = "loading"
    READY = "ready"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"
    UNLOADED = "unloaded"


class ModelEvent(Enum):
    OPENED = "opened"  # every lane answers
    LANE_BACK = "lane back"  # it answers again, others are still missing
    RESTARTING = "restarting"  # no lane answers, and one is coming back
    LANE_LOST = "lane lost"  # others still answer
    LOST = "lost"  # no lane answers, or loading failed
    CLOSE = "close"


_ALIVE = (ModelState.READY, ModelState.DEGRADED)

TRANSITIONS: Mapping[tuple[ModelState, ModelEvent], ModelState] = {
    (ModelState.LOADING, ModelEvent.OPENED): ModelState.READY,
    (ModelState.DEGRADED, ModelEvent.OPENED): ModelState.READY,
    (ModelState.LOADING, ModelEvent.LANE_BACK): ModelState.DEGRADED,
    (ModelState.DEGRADED, ModelEvent.LANE_BACK): ModelState.DEGRADED,
    (ModelState.LOADING, ModelEvent.LOST): ModelState.UNAVAILABLE,
    **{(state, ModelEvent.RESTARTING): ModelState.LOADING for state in _ALIVE},
    **{(state, ModelEvent.LANE_LOST): ModelState.DEGRADED for state in _ALIVE},
    **{(state, ModelEvent.LOST): ModelState.UNAVAILABLE for state in _ALIVE},
    **{(state, ModelEvent.CLOSE): ModelState.UNLOADED for state in ModelState},
}


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """``stage`` is a word or two for people ("lowering"); ``fraction`` is 0 to 1 where it is known."""

    stage: str
    fraction: float | None = None


ReportProgress = Callable[[LoadProgress], None]  # thread-safe, returns at once


class LaneObserver(Protocol):
    """Hears of lanes that come and go after a model was opened. Called on the event loop."""

    def lane_lost(self, lane: Lane, *, is_coming_back: bool = False) -> None: ...

    def lane_back(self, lane: Lane) -> None: ...

    def lane_given_up(self) -> None:
        """A lane that was to come back will not."""
        ...


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """What opening a model gives. ``generation_config`` is the checkpoint's own, empty where it has none.

    ``watch`` begins to tell of lanes that are lost and replaced; ``close`` ends whatever keeps the lanes alive.
    """

    lanes: Sequence[Lane]
    generation_config: Mapping[str, object] = field(default_factory=dict)
    watch: Callable[[LaneObserver], None] | None = None
    close: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A configured model. ``open`` makes its lanes, off the event loop; it may take minutes."""

    name: str
    open: Callable[[ReportProgress], Awaitable[OpenedModel]]
    required: bool = True
    sampling: Mapping[str, object] = field(default_factory=dict)  # the operator's, over the model's own
    created_unix_seconds: int = field(default_factory=lambda: int(time.time()))
    reasoning_parser: str = AUTO
    tool_call_parser: str = AUTO
    enable_auto_tool_choice: bool = True  # False: tool_choice auto means none

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a model needs a name")
        check_parser_names(reasoning_parser=self.reasoning_parser, tool_call_parser=self.tool_call_parser)


class ServedModel:
    """One configured model with its state and, once open, its lanes and their admission."""

    def __init__(self, spec: ModelSpec, settings: ServingSettings) -> None:
        self.spec = spec
        self.state = ModelState.LOADING
        self.progress = LoadProgress("waiting")
        self.failure: BaseException | None = None
        self.lanes: tuple[Lane, ...] = ()
        self.sampling = SamplingDefaults().overlaid(spec.sampling)
        self.admission = Admission(settings)
        self._settings = settings
        self._last_lane: Lane | None = None
        self.lanes_lost_total = 0
        self.lanes_restarted_total = 0
        self._lanes_coming_back = 0
        self._lanes_given_up = 0
        self._close_lanes: Callable[[], Awaitable[None]] | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    def apply(self, event: ModelEvent) -> None:
        self.state = TRANSITIONS[self.state, event]

    def opened(self, opened: OpenedModel) -> None:
        self.lanes = tuple(opened.lanes)
        self._last_lane = self.lanes[0]
        self._close_lanes = opened.close
        self.sampling = SamplingDefaults().with_generation_config(opened.generation_config).overlaid(self.spec.sampling)
        for lane in self.lanes:
            self.admission.add_lane(lane, _slots_of(lane.capabilities))
        self.failure = None
        self.apply(ModelEvent.OPENED)
        if opened.watch is not None:
            opened.watch(self)

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
            self.apply(ModelEvent.LOST)
            self.admission.close(self._unavailable)

    async def close(self) -> None:
        """Release every lane once. Idempotent."""
        lanes, self.lanes = self.lanes, ()
        self.apply(ModelEvent.CLOSE)
        close_lanes, self._close_lanes = self._close_lanes, None
        if close_lanes is not None:
            await close_lanes()
        for lane in lanes:
            await lane.close()

    @property
    def is_alive(self) -> bool:
        """It can take a request."""
        return self.state in _ALIVE

    @property
    def capabilities(self) -> Capabilities | None:
        return self._last_lane.capabilities if self._last_lane is not None else None

    def require_lane(self) -> Lane:
        """A lane to ask what the model can do and to encode with, even while its replacement is on the way.

        Raises ModelLoadingError or ModelUnavailableError while the model cannot take a request.
        """
        if self.lanes:
            return self.lanes[0]
        if self.state is not ModelState.LOADING:
            raise self._unavailable()
        if self._last_lane is None:
            raise ModelLoadingError(
                f"The model is still loading ({self.progress.stage}).",
                retry_after_seconds=self._settings.loading_retry_after_seconds,
            )
        return self._last_lane

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

    def _unavailable(self) -> ModelUnavailableError:
        return ModelUnavailableError(
            "The model is not available.", retry_after_seconds=self._settings.loading_retry_after_seconds
        )


def _slots_of(capabilities: Capabilities) -> int:
    return capabilities.max_batch_size if capabilities.in_flight_batching else 1
