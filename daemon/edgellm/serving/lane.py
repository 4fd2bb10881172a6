"""Lane: one replica of a model as serving sees it. An in-process lane and a worker lane look the same from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from edgellm.errors import EdgeLLMError
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import GenerationRequest
from edgellm.runtime.outputs import StreamDelta


class DeltaReceiver(Protocol):
    """Takes what one request on a lane produces. Called on the event loop, outside of any task; never blocks or raises.

    A lane calls it straight from where it reads, so that a delta costs one call and no wake-up of a task.
    """

    def take(self, delta: StreamDelta) -> None:
        """The next delta. What came late is merged into one; the finished one is the last."""
        ...

    def take_text(self, text: str, token_ids: list[int]) -> None:
        """The next delta where it is no more than this, as most are: the same as ``take``, without an object for it."""
        ...

    def ended(self, error: EdgeLLMError | None) -> None:
        """The runtime has let go of the request: its slot is free. ``error`` says why it did not end well."""
        ...


class LaneGeneration(Protocol):
    """One accepted request on a lane."""

    def cancel(self) -> None:
        """Stop within one step. Idempotent, thread-safe, returns at once; the receiver hears of the end."""
        ...


@dataclass(frozen=True, slots=True)
class LaneCounters:
    """Snapshot for health and metrics; keys are the field names of the runtime contract's metrics.

    ``resident_bytes`` is what the lane's own process holds, None where it has none.
    """

    scheduling: Mapping[str, int] | None
    context_cache: Mapping[str, int] | None
    steps_completed: int
    resident_bytes: int | None = None
    media: Mapping[str, int] | None = None


class Lane(Protocol):
    """Thread-safe towards the event loop: every method is called from it and none blocks it."""

    @property
    def name(self) -> str:
        """Which replica of its model: a number as text. A lane that replaces a lost one has its name."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def encode(self, request: GenerationRequest) -> GenerationRequest:
        """Return the request as it will run: ``prompt_token_ids`` filled where this runtime takes ids, and
        ``params.max_tokens`` clamped to what the prompt leaves.

        Takes no generation slot and is called before one is reserved; long prompts are tokenised off the event
        loop. A request that already carries ids is only clamped. Raises ContextLengthError when the prompt leaves
        no room, and RequestError for messages that the chat template refuses.
        """
        ...

    async def count_tokens(self, request: GenerationRequest) -> int:
        """Return how many tokens its prompt has. Takes no generation slot; raises as ``encode`` does."""
        ...

    async def submit(self, request: GenerationRequest, receiver: DeltaReceiver) -> LaneGeneration:
        """Return once the runtime accepted the request. Raises RequestError for what the runtime refuses.

        Deltas may reach the receiver before this returns. When this raises, the receiver hears nothing, and the
        runtime has let go of the request.
        """
        ...

    def counters(self) -> LaneCounters: ...

    async def close(self) -> None:
        """Drain and release the runtime once. Idempotent."""
        ...
