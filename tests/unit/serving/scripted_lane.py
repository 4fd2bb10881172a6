"""A lane whose generations say what a test tells them, when it tells them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from edgellm.errors import ContextLengthError, EdgeLLMError, RequestCancelledError
from edgellm.parsing.output_style import OutputStyle
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import GenerationRequest
from edgellm.runtime.outputs import StreamDelta
from edgellm.serving.lane import DeltaReceiver, LaneCounters
from edgellm.serving.model_spec import ModelSpec, OpenedModel, ReportProgress

PROMPT_TOKENS = 7
WARM_UP_PROMPT = "Hello"


def capabilities(**changes: object) -> Capabilities:
    whole = Capabilities(
        runtime="native",
        executor="scripted",
        executor_device="paper",
        max_batch_size=2,
        max_input_len=100,
        max_kv_cache_capacity=200,
        vocab_size=1000,
        in_flight_batching=True,
        context_cache=True,
        guided_decoding=("json_object", "json_schema", "structural_tag"),
        parameters=frozenset({"min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"}),
        output_style=OutputStyle(shows_tools=True),
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


class ScriptedGeneration:
    """``say`` and ``finish`` feed it; a lane that ``holds_slots`` keeps the slot until ``let_go``."""

    def __init__(self, lane: ScriptedLane, request: GenerationRequest, receiver: DeltaReceiver) -> None:
        self.lane = lane
        self.request = request
        self.cancelled = False
        self.ended = False
        self.has_let_go = False
        self._receiver = receiver
        self._error: EdgeLLMError | None = None

    def say(self, text: str, tokens: int = 1) -> None:
        """As lanes do with text alone; ``give`` does the same with the whole delta."""
        self._receiver.take_text(text, list(range(tokens)))

    def give(self, delta: StreamDelta) -> None:
        self._receiver.take(delta)
        if delta.finished:
            self._end()

    def finish(self, reason: str = "stop", cached_tokens: int = 0) -> None:
        self.give(
            StreamDelta(finished=True, finish_reason=reason, prompt_tokens=PROMPT_TOKENS, cached_tokens=cached_tokens)
        )

    def fail(self, error: EdgeLLMError) -> None:
        self._error = error
        self._end()

    def let_go(self) -> None:
        if not self.has_let_go:
            self.has_let_go = True
            self.lane.occupied -= 1
            self._receiver.ended(self._error)

    def _end(self) -> None:
        self.ended = True
        if not self.lane.holds_slots:
            self.let_go()

    def cancel(self) -> None:
        if not self.cancelled and not self.ended:
            self.cancelled = True
            self.fail(RequestCancelledError("cancelled"))


class ScriptedLane:
    """Counts what runs at a time. ``script`` runs for each accepted generation, unless a test drives them by hand."""

    def __init__(self, script: Callable[[ScriptedGeneration], None] | None = None, **changes: object) -> None:
        self.name = "0"
        self.capabilities = capabilities(**changes)
        self.script = script
        self.holds_slots = False
        self.refusal: EdgeLLMError | None = None
        self.before_accepting: Callable[[], Awaitable[None]] | None = None
        self.generations: list[ScriptedGeneration] = []
        self.encoded: list[GenerationRequest] = []
        self.occupied = 0
        self.most_occupied = 0
        self.closed = 0

    async def encode(self, request: GenerationRequest) -> GenerationRequest:
        self.encoded.append(request)
        if "too long" in str(request.prompt):
            raise ContextLengthError("the prompt is too long", param="messages")
        left_tokens = self.capabilities.max_kv_cache_capacity - PROMPT_TOKENS
        params = replace(request.params, max_tokens=min(request.params.max_tokens, left_tokens))
        return replace(request, prompt_token_ids=list(range(PROMPT_TOKENS)), params=params)

    async def count_tokens(self, request: GenerationRequest) -> int:
        await self.encode(request)
        return PROMPT_TOKENS

    async def submit(self, request: GenerationRequest, receiver: DeltaReceiver) -> ScriptedGeneration:
        if self.before_accepting is not None:
            await self.before_accepting()
        if self.refusal is not None:
            raise self.refusal
        generation = ScriptedGeneration(self, request, receiver)
        self.occupied += 1
        self.most_occupied = max(self.most_occupied, self.occupied)
        if getattr(request.prompt, "text", None) == WARM_UP_PROMPT:
            say_words("Hi")(generation)
        else:
            self.generations.append(generation)
            if self.script is not None:
                self.script(generation)
        return generation

    def counters(self) -> LaneCounters:
        return LaneCounters(scheduling={"completed": 3}, context_cache={"hit_sequences": 1}, steps_completed=5)

    async def close(self) -> None:
        self.closed += 1


def say_words(*words: str, reason: str = "stop") -> Callable[[ScriptedGeneration], None]:
    def script(generation: ScriptedGeneration) -> None:
        for word in words:
            generation.say(word)
        generation.finish(reason)

    return script


def spec_of(*lanes: ScriptedLane, name: str = "tiny", **further: object) -> ModelSpec:
    async def open_lanes(report: ReportProgress) -> OpenedModel:
        return OpenedModel(lanes)

    return ModelSpec(name, open_lanes, **further)  # type: ignore[arg-type]


async def settle(turns: int = 20) -> None:
    """Let the event loop run what is due; nothing here waits for time to pass."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool], deadline_seconds: float = 10.0) -> None:
    async with asyncio.timeout(deadline_seconds):
        while not condition():  # noqa: ASYNC110  # what is waited for has no event
            await asyncio.sleep(0.001)


def texts(deltas: Sequence[StreamDelta]) -> str:
    return "".join(delta.text for delta in deltas)
