"""ModelSpec: a configured model and how it is opened, and what opening it gives."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from edgellm.config.model_kind import ModelKind
from edgellm.errors import ConfigError
from edgellm.parsing.answer_parser import AUTO
from edgellm.parsing.output_style import check_parser_names
from edgellm.serving.lane import Lane
from edgellm.serving.settings import ServingSettings


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

    ``watch`` begins to tell of lanes that are lost and replaced; ``close`` ends whatever keeps the lanes alive and
    returns how many processes had to be killed for it. ``memory_bytes`` measures what the lanes take now, in a thread.
    ``log_at`` has the lanes' processes log from another level on.
    """

    lanes: Sequence[Lane]
    generation_config: Mapping[str, object] = field(default_factory=dict)
    watch: Callable[[LaneObserver], None] | None = None
    close: Callable[[], Awaitable[int]] | None = None
    memory_bytes: Callable[[], int | None] | None = None
    log_at: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A configured model. ``open`` makes its lanes, off the event loop; it may take minutes.

    ``estimate_bytes`` says what memory it will take, None where that is not known before it is loaded; it raises what
    the model cannot be loaded for. Models of equal ``made_from`` have lanes that are alike.
    """

    name: str
    open: Callable[[ReportProgress], Awaitable[OpenedModel]]
    required: bool = True
    aliases: Sequence[str] = ()
    on_demand: bool = False
    idle_timeout_seconds: float | None = None
    estimate_bytes: Callable[[], Awaitable[int | None]] | None = None
    made_from: Hashable = None
    source: str = ""  # where its files come from, as configured
    slots_expected: int = 1  # requests that may wait beyond the queue's limit for it to be opened
    sampling: Mapping[str, object] = field(default_factory=dict)  # the operator's, over the model's own
    serving: ServingSettings | None = None  # its own limits; None: those of all models
    created_unix_seconds: int = field(default_factory=lambda: int(time.time()))
    reasoning_parser: str = AUTO
    tool_call_parser: str = AUTO
    kind: ModelKind = "auto"
    enable_auto_tool_choice: bool = True  # False: tool_choice auto means none

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a model needs a name")
        check_parser_names(reasoning_parser=self.reasoning_parser, tool_call_parser=self.tool_call_parser)
