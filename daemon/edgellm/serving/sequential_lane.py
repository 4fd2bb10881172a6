"""SequentialLane: a lane over a model of this process that does one thing at a time, in a thread of its own.

Where it may have several requests they take turns, a delta each.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from edgellm.errors import EdgeLLMError, GenerationError, RequestCancelledError
from edgellm.runtime.cancellation import Cancellation
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import GenerationRequest
from edgellm.runtime.outputs import StreamDelta
from edgellm.runtime.request_encoder import RequestEncoder
from edgellm.serving.error_frames import error_frames, without_frames
from edgellm.serving.lane import DeltaReceiver, LaneCounters

_log = logging.getLogger(__name__)


class SequentialWork(Protocol):
    """One request on its way through the model. Each method is called once, on the lane's thread, in this order; others
    are worked on between two deltas.
    """

    def check(self) -> None:
        """Find out whether it can be done. Raises RequestError."""
        ...

    def deltas(self) -> Iterator[StreamDelta]:
        """Do it; cancelled, it ends early. The last delta of what was done is the finished one."""
        ...

    def close(self) -> None:
        """Give up what it holds; also when it was not checked or done."""
        ...


class SequentialModel(Protocol):
    """``failure`` is what a client hears of an error that is nobody's."""

    failure: str

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def encoder(self) -> RequestEncoder: ...

    def work(self, request: GenerationRequest, is_cancelled: Cancellation) -> SequentialWork:
        """Raises RequestError for a request of another kind."""
        ...

    def close(self) -> None: ...


class SequentialLane:
    """Owns the model: ``close()`` closes it."""

    def __init__(self, model: SequentialModel) -> None:
        self._model = model
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="edgellm-model")
        self._running: set[_Running] = set()
        self._steps_completed = 0

    @property
    def name(self) -> str:
        return "0"  # the only one

    @property
    def capabilities(self) -> Capabilities:
        return self._model.capabilities

    async def encode(self, request: GenerationRequest) -> GenerationRequest:
        return self._model.encoder.encode(request)

    async def count_tokens(self, request: GenerationRequest) -> int:
        return self._model.encoder.count(request)

    async def submit(self, request: GenerationRequest, receiver: DeltaReceiver) -> _Running:
        """Returns once the request was checked, so that what can be refused is."""
        running = _Running(self, request, receiver)
        self._running.add(running)
        loop = asyncio.get_running_loop()
        checking = loop.run_in_executor(self._thread, running.work.check)
        try:
            await asyncio.shield(checking)
        except BaseException:
            running.cancel()
            await asyncio.wait((checking,))
            self._running.discard(running)
            raise
        self._thread.submit(running.step, loop)
        return running

    def counters(self) -> LaneCounters:
        return LaneCounters(None, None, self._steps_completed)

    async def close(self) -> None:
        for running in list(self._running):
            running.cancel()
        await asyncio.to_thread(self._thread.shutdown)
        self._model.close()

    # For its requests

    @property
    def model(self) -> SequentialModel:
        return self._model

    def count_step(self) -> None:
        self._steps_completed += 1

    def call_later(self, step: Callable[[asyncio.AbstractEventLoop], None], loop: asyncio.AbstractEventLoop) -> bool:
        """Behind the steps that wait. False, with nothing done, once the lane closes."""
        try:
            self._thread.submit(step, loop)
        except RuntimeError:
            return False
        return True

    def released(self, running: _Running) -> None:
        self._running.discard(running)


class _Running:
    """One request. ``step`` is called on the lane's thread, again and again until it is over."""

    def __init__(self, lane: SequentialLane, request: GenerationRequest, receiver: DeltaReceiver) -> None:
        self._lane = lane
        self._receiver = receiver
        self._cancelled = Cancellation(lane.count_step)
        self.work = lane.model.work(request, self._cancelled)
        self._deltas: Iterator[StreamDelta] | None = None

    def cancel(self) -> None:
        self._cancelled.set()

    def step(self, loop: asyncio.AbstractEventLoop) -> None:
        error: EdgeLLMError | None = None
        try:
            if self._deltas is None:
                self._deltas = self.work.deltas()
            for delta in self._deltas:
                loop.call_soon_threadsafe(self._receiver.take, delta)
                # Who is cancelled ends now; so does everybody when the lane closes.
                if not self._cancelled.is_set() and self._lane.call_later(self.step, loop):
                    return
            if self._cancelled.is_set():
                error = RequestCancelledError("the request was cancelled")
        except EdgeLLMError as raised:
            error = without_frames(raised)
        except Exception as raised:  # whoever waits has to hear of it
            _log.error("a request failed: %s", error_frames(raised))
            error = GenerationError(self._lane.model.failure)
        self.work.close()
        loop.call_soon_threadsafe(self._ended, error)

    def _ended(self, error: EdgeLLMError | None) -> None:
        self._lane.released(self)
        self._receiver.ended(error)
