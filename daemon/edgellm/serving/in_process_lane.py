"""InProcessLane: a lane over an LLM of this process."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from edgellm.media.limits import DECODING_JOBS_MAX
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.contract import FrameSocket, context_cache_counters
from edgellm.runtime.generation import GenerationRequest
from edgellm.runtime.llm import LLM
from edgellm.runtime.loaded_model import LoadedModel
from edgellm.runtime.prompt_front_end import prompt_bytes
from edgellm.runtime.running import InFlightGeneration, RunningGeneration
from edgellm.serving.in_process_generation import Acceptance, PumpedGeneration, SignalledReader
from edgellm.serving.lane import DeltaReceiver, LaneCounters, LaneGeneration
from edgellm.serving.spoken_answer import as_asked
from edgellm.serving.start_with_media import StartWithMedia

# A prompt of this size is tokenised in less time than handing it to a thread and back would take to matter.
INLINE_PROMPT_BYTES = 2048
MIN_PUMP_THREADS = 32


class InProcessLane:
    """Owns the LLM: ``close()`` closes it. Its admission is serving's, not that of the Python API."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._loaded: LoadedModel = llm.loaded
        self._pumps = ThreadPoolExecutor(
            max(MIN_PUMP_THREADS, 2 * llm.max_batch_size), thread_name_prefix="edgellm-lane"
        )
        self._decoding = ThreadPoolExecutor(DECODING_JOBS_MAX, thread_name_prefix="edgellm-decoding")
        self._reader: SignalledReader | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return "0"  # the only one

    @property
    def capabilities(self) -> Capabilities:
        return self._loaded.capabilities

    async def encode(self, request: GenerationRequest) -> GenerationRequest:
        if request.prompt_token_ids is not None or prompt_bytes(request.prompt) <= INLINE_PROMPT_BYTES:
            return self._loaded.encode(request)
        return await asyncio.to_thread(self._loaded.encode, request)

    async def count_tokens(self, request: GenerationRequest) -> int:
        return await asyncio.to_thread(self._loaded.count, request)

    async def submit(self, request: GenerationRequest, receiver: DeltaReceiver) -> LaneGeneration:
        if request.media:
            running = await StartWithMedia(self._loaded, request).started(self._decoding)
        else:
            if request.prompt_token_ids is None and self._loaded.builder.has_extensions:
                request = await self.encode(request)
            running = await self._start(request)
        running = as_asked(running, request)
        loop = asyncio.get_running_loop()
        if isinstance(running, InFlightGeneration):
            reader = self._reader_on(loop)
            if reader is not None:
                return reader.add(
                    running,
                    receiver,
                    with_logprobs=request.params.num_logprobs > 0,
                    with_embedding=request.embedding,
                )
        if not self._refuses_late(request):
            return self._pump(PumpedGeneration(loop, running, receiver, with_embedding=request.embedding))
        acceptance = Acceptance(receiver)
        generation = self._pump(PumpedGeneration(loop, running, acceptance, with_embedding=request.embedding))
        await acceptance.decided(generation.cancel)
        return generation

    def _pump(self, generation: PumpedGeneration) -> PumpedGeneration:
        self._pumps.submit(generation.pump)
        return generation

    def _reader_on(self, loop: asyncio.AbstractEventLoop) -> SignalledReader | None:
        if self._reader is None or self._reader.loop is not loop:
            signal = self._loaded.driver.make_signal()
            if signal is None:
                return None
            self._stop_reading()
            self._reader = SignalledReader(loop, signal)
        return self._reader

    def _stop_reading(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def make_frame_socket(self, descriptor: int) -> FrameSocket | None:
        """Give a socket that generations of this lane can write to themselves; None where the runtime has none."""
        return self._loaded.driver.make_frame_socket(descriptor)

    def counters(self) -> LaneCounters:
        driver = self._loaded.driver
        cache = driver.context_cache_metrics()
        return LaneCounters(
            scheduling=driver.scheduling_metrics(),
            context_cache=None if cache is None else context_cache_counters(cache),
            steps_completed=driver.steps_completed(),
            media=driver.media_metrics(),
        )

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._reader is not None and self._reader.loop.is_closed():
            self._stop_reading()
        await asyncio.to_thread(self._llm.close)
        self._stop_reading()
        self._decoding.shutdown(wait=False)
        self._pumps.shutdown(wait=False)

    async def _start(self, request: GenerationRequest) -> RunningGeneration:
        if request.params.guide is None:
            return self._loaded.start(request, _nothing)
        # Compiling a grammar takes milliseconds, sometimes many.
        starting = asyncio.get_running_loop().run_in_executor(None, self._loaded.start, request, _nothing)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_cancel_started)
            raise

    def _refuses_late(self, request: GenerationRequest) -> bool:
        """On the blocking path a refusal comes out of the call itself, unless the front end has checked everything."""
        if self._loaded.driver.in_flight:
            return False
        return request.prompt_token_ids is None or request.params.guide is not None


def _nothing() -> None:
    """Serving counts places by what receivers are told."""


def _cancel_started(starting: asyncio.Future[RunningGeneration]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().cancel()
