"""InProcessLane: a lane over an LLM of this process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

from edgellm.errors import EdgeLLMError, GenerationError, RequestCancelledError
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.contract import context_cache_counters
from edgellm.runtime.deltas import merge_deltas, to_delta, to_output
from edgellm.runtime.generation import GenerationRequest
from edgellm.runtime.llm import LLM
from edgellm.runtime.loaded_model import LoadedModel
from edgellm.runtime.outputs import StreamDelta
from edgellm.runtime.prompt_front_end import prompt_bytes
from edgellm.runtime.running import RunningGeneration
from edgellm.serving.lane import LaneCounters

_log = logging.getLogger(__name__)

# A prompt of this size is tokenised in less time than handing it to a thread and back would take to matter.
INLINE_PROMPT_BYTES = 2048
MIN_PUMP_THREADS = 32

_UNFINISHED_REASONS = ("cancelled", "error")


class InProcessLane:
    """Owns the LLM: ``close()`` closes it. Its admission is serving's, not that of the Python API."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._loaded: LoadedModel = llm.loaded
        self._pumps = ThreadPoolExecutor(
            max(MIN_PUMP_THREADS, 2 * llm.max_batch_size), thread_name_prefix="edgellm-lane"
        )
        self._closing: asyncio.Task[None] | None = None

    @property
    def capabilities(self) -> Capabilities:
        return self._loaded.capabilities

    async def encode(self, request: GenerationRequest) -> GenerationRequest:
        if request.prompt_token_ids is not None or prompt_bytes(request.prompt) <= INLINE_PROMPT_BYTES:
            return self._loaded.encode(request)
        return await asyncio.to_thread(self._loaded.encode, request)

    async def count_tokens(self, request: GenerationRequest) -> int:
        return await asyncio.to_thread(self._loaded.count, request)

    async def submit(self, request: GenerationRequest) -> InProcessGeneration:
        if request.prompt_token_ids is None and self._loaded.builder.has_extensions:
            request = await self.encode(request)
        generation = InProcessGeneration(asyncio.get_running_loop(), await self._start(request))
        self._pumps.submit(generation.pump)
        if self._refuses_late(request):
            await generation.accepted()
        return generation

    def counters(self) -> LaneCounters:
        driver = self._loaded.driver
        cache = driver.context_cache_metrics()
        return LaneCounters(
            scheduling=driver.scheduling_metrics(),
            context_cache=None if cache is None else context_cache_counters(cache),
            steps_completed=driver.steps_completed(),
        )

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await asyncio.to_thread(self._llm.close)
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


class InProcessGeneration:
    """One request on the lane. A pump thread waits for its chunks; deltas that a slow reader left are merged."""

    def __init__(self, loop: asyncio.AbstractEventLoop, running: RunningGeneration) -> None:
        self._loop = loop
        self._running = running
        self._handing_over = threading.Lock()
        self._waiting: list[StreamDelta] = []
        self._wake_is_due = False
        self._readable = asyncio.Event()
        self._released = asyncio.Event()
        self._error: EdgeLLMError | None = None

    async def deltas(self) -> AsyncIterator[StreamDelta]:
        while True:
            taken = self._take()
            if taken:
                yield merge_deltas(taken)
            elif self._released.is_set():
                if self._error is not None:
                    raise self._error
                return
            else:
                self._readable.clear()
                await self._readable.wait()

    def cancel(self) -> None:
        self._running.cancel()

    async def released(self) -> None:
        await self._released.wait()

    async def accepted(self) -> None:
        """Return at the first sign of life. Raises what the runtime refused the request with."""
        try:
            await self._readable.wait()
        except asyncio.CancelledError:
            self.cancel()
            await self._released.wait()
            raise
        if self._error is not None and not self._waiting:
            raise self._error

    def pump(self) -> None:
        """Runs on a thread of the lane until the runtime has let go of the request."""
        error: EdgeLLMError | None = None
        try:
            error = self._pump_chunks()
        except EdgeLLMError as raised:
            error = raised
        except Exception:  # a reader waits for this thread: whatever happened, it has to hear of the end
            _log.exception("a generation's pump failed")
            self._running.cancel()
            error = GenerationError("the request could not be finished")
        self._call_loop(self._end, error)

    def _pump_chunks(self) -> EdgeLLMError | None:
        last: StreamDelta | None = None
        while (chunk := self._running.next_chunk()) is not None:
            delta = to_delta(chunk)
            if not chunk.finished:
                self._hand_over(delta)
                continue
            last = delta
            if delta.finish_reason not in _UNFINISHED_REASONS:
                self._hand_over(delta)
            break
        output = to_output(self._running.result())
        reason = last.finish_reason if last is not None else output.finish_reason
        if reason == "cancelled":
            return RequestCancelledError("the request was cancelled")
        # A text whose end nobody announced did not end well, whatever else the runtime says.
        if last is None or reason == "error":
            return GenerationError("the runtime could not finish this request")
        return None

    def _hand_over(self, delta: StreamDelta) -> None:
        with self._handing_over:
            self._waiting.append(delta)
            wake, self._wake_is_due = not self._wake_is_due, True
        if wake:
            self._call_loop(self._readable.set)
        elif self._loop.is_closed():  # nobody will come for it
            self._running.cancel()

    def _take(self) -> list[StreamDelta]:
        with self._handing_over:
            taken, self._waiting = self._waiting, []
            self._wake_is_due = False
        return taken

    def _end(self, error: EdgeLLMError | None) -> None:
        self._error = error
        self._released.set()
        self._readable.set()

    def _call_loop(self, callback: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop was closed under us: nobody is left to tell
            self._running.cancel()


def _nothing() -> None:
    """Serving counts places by ``released()``."""


def _cancel_started(starting: asyncio.Future[RunningGeneration]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().cancel()
