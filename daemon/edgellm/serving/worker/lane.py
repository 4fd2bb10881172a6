"""WorkerLane: a lane whose runtime lives in a worker process. Requests are encoded here and run there."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from typing import Self

from edgellm.errors import EdgeLLMError, RequestError
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import GenerationRequest
from edgellm.runtime.process_memory import resident_memory
from edgellm.runtime.prompt_front_end import prompt_bytes
from edgellm.runtime.request_encoder import RequestEncoder, encoder_of_bundle
from edgellm.serving.in_process_lane import INLINE_PROMPT_BYTES
from edgellm.serving.lane import DeltaReceiver, LaneCounters
from edgellm.serving.worker.conversion import files_of, from_delta_message, to_error, to_submit
from edgellm.serving.worker.frames import FrameTooLargeError
from edgellm.serving.worker.messages import (
    Accepted,
    Cancel,
    Counted,
    Credit,
    Delta,
    Final,
    Ready,
    ToFrontEnd,
)
from edgellm.serving.worker.process import WorkerProcess
from edgellm.serving.worker.streams import WINDOW_DELTAS
from edgellm.serving.worker.token_counts import TokenCounts

# Deltas that are taken before the worker hears of it: a frame for each would double the traffic.
CREDIT_DELTAS = WINDOW_DELTAS // 4


class WorkerLane:
    """Over a worker that is ready. It outlives its worker: encode() goes on working, submit() then raises."""

    def __init__(
        self,
        process: WorkerProcess,
        encoder: RequestEncoder,
        counts: TokenCounts,
        bundle_dir: Path,
        cancel_grace_seconds: float,
    ) -> None:
        self._process = process
        self._encoder = encoder
        self._counts = counts
        self._cancel_grace_seconds = cancel_grace_seconds
        self.bundle_dir = bundle_dir
        self._loop = asyncio.get_running_loop()
        self._numbers = count(1)
        self._streams: dict[int, WorkerGeneration] = {}
        process.on_message = self._received
        process.on_delta = self._received_delta
        process.when_lost(self._worker_lost)

    @classmethod
    async def over(cls, process: WorkerProcess, ready: Ready, cancel_grace_seconds: float) -> Self:
        """Raises CheckpointError for a bundle whose tokenizer or template cannot be read."""
        bundle_dir, counts = Path(ready.bundle_dir), TokenCounts(process)
        # Reading a tokenizer takes a while.
        encoder = await asyncio.to_thread(encoder_of_bundle, bundle_dir, ready.capabilities, counts.ask_from_thread)
        return cls(process, encoder, counts, bundle_dir, cancel_grace_seconds)

    @property
    def name(self) -> str:
        return str(self._process.spec.replica)

    @property
    def capabilities(self) -> Capabilities:
        return self._encoder.capabilities

    @property
    def process(self) -> WorkerProcess:
        return self._process

    async def encode(self, request: GenerationRequest) -> GenerationRequest:
        inline = self._encoder.tokenises and prompt_bytes(request.prompt) <= INLINE_PROMPT_BYTES
        if request.prompt_token_ids is not None or inline:
            return self._encoder.encode(request)
        return await asyncio.to_thread(self._encoder.encode, request)

    async def count_tokens(self, request: GenerationRequest) -> int:
        return await asyncio.to_thread(self._encoder.count, request)

    async def submit(self, request: GenerationRequest, receiver: DeltaReceiver) -> WorkerGeneration:
        if request.prompt_token_ids is None and self._encoder.tokenises and not request.media:
            request = await self.encode(request)
        if self._process.is_lost:
            raise self._process.lost_error()
        number = next(self._numbers)
        generation = WorkerGeneration(self, number, receiver)
        self._streams[number] = generation
        try:
            self._process.send(to_submit(number, request), files_of(request))
        except FrameTooLargeError:
            del self._streams[number]
            raise RequestError("the request is too large for this model's worker") from None
        except EdgeLLMError:
            del self._streams[number]
            raise
        await generation.accepted()
        return generation

    def counters(self) -> LaneCounters:
        pong = self._process.last_pong
        memory = resident_memory(self._process.pid)
        resident_bytes = None if memory is None else memory.total_bytes
        if pong is None:
            return LaneCounters(None, None, 0, resident_bytes)
        return LaneCounters(pong.scheduling, pong.context_cache, pong.steps_completed, resident_bytes, pong.media)

    async def close(self) -> None:
        await self._process.close()

    # For its generations

    def cancel(self, number: int) -> None:
        """The worker that does not confirm in time is given up, rather than kept with a request it may still run."""
        self._process.send(Cancel(number))
        self._loop.call_later(self._cancel_grace_seconds, self._give_up_unless_ended, number)

    def took(self, number: int, deltas: int) -> None:
        self._process.send(Credit(number, deltas))

    def _give_up_unless_ended(self, number: int) -> None:
        if number in self._streams:
            self._process.fail(f"did not stop a cancelled request within {self._cancel_grace_seconds:g} s")

    # What the worker says

    def _received_delta(self, message: Delta) -> None:
        generation = self._streams.get(message.stream)
        if generation is not None:
            generation.take(message)

    def _received(self, message: ToFrontEnd) -> None:
        if isinstance(message, Accepted):
            if message.stream in self._streams:
                self._streams[message.stream].was_accepted()
        elif isinstance(message, Final):
            ended = self._streams.pop(message.stream, None)
            if ended is not None:
                ended.end(None if message.error is None else to_error(message.error))
            if message.runtime_is_broken:
                self._process.fail("reported a failed runtime")
        elif isinstance(message, Counted):
            self._counts.answered(message)

    def _worker_lost(self) -> None:
        streams, self._streams = self._streams, {}
        for generation in streams.values():
            generation.end(self._process.lost_error())


class WorkerGeneration:
    """One request on the lane: what its frames say goes straight to the receiver."""

    __slots__ = ("_decision", "_is_wanted", "_lane", "_let_go", "_number", "_receiver", "_taken_deltas")

    def __init__(self, lane: WorkerLane, number: int, receiver: DeltaReceiver) -> None:
        loop = asyncio.get_running_loop()
        self._lane = lane
        self._number = number
        self._receiver = receiver
        self._taken_deltas = 0
        self._is_wanted = True
        self._decision: asyncio.Future[EdgeLLMError | None] = loop.create_future()
        self._let_go: asyncio.Future[None] = loop.create_future()

    async def accepted(self) -> None:
        """Return once the worker took the request. When it raises, the receiver hears nothing and it is over."""
        try:
            error = await asyncio.shield(self._decision)
        except asyncio.CancelledError:
            self._is_wanted = False
            self.cancel()
            await self._let_go
            raise
        if error is not None:
            raise error

    def cancel(self) -> None:
        if not self._let_go.done():
            self._lane.cancel(self._number)

    def was_accepted(self) -> None:
        if not self._decision.done():
            self._decision.set_result(None)

    def take(self, message: Delta) -> None:
        if self._is_wanted:
            # Of the other fields, counts matter with the finished one alone.
            if (
                message.logprobs is None
                and message.finish_reason is None
                and message.segments is None
                and message.audio is None
            ):
                self._receiver.take_text(message.text, message.token_ids)
            else:
                self._receiver.take(from_delta_message(message))
        self._taken_deltas += 1
        if self._taken_deltas == CREDIT_DELTAS:
            self._taken_deltas = 0
            self._lane.took(self._number, CREDIT_DELTAS)

    def end(self, error: EdgeLLMError | None) -> None:
        self._let_go.set_result(None)
        if not self._decision.done():
            self._decision.set_result(error)
            if error is not None:
                return
        if self._is_wanted:
            self._receiver.ended(error)
