"""Requests on an in-process lane: their chunks on the way from the runtime to the event loop.

A runtime with signals is read on the loop itself: one descriptor wakes it for all requests of the lane, and no other
thread takes part. Any other runtime needs a thread for each request that waits for its chunks.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from edgellm.errors import EdgeLLMError, GenerationError, RequestCancelledError
from edgellm.runtime.contract import DeltaFrames, StreamSignal
from edgellm.runtime.deltas import embedding_bytes, finish_reason_name, merge_deltas, to_delta
from edgellm.runtime.outputs import StreamDelta
from edgellm.runtime.running import InFlightGeneration, RunningGeneration
from edgellm.serving.lane import DeltaReceiver

_log = logging.getLogger(__name__)

_UNFINISHED_REASONS = ("cancelled", "error")


class SignalledReader:
    """Reads all requests of a lane whenever its signal was raised. Belongs to one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, signal: StreamSignal) -> None:
        self.loop = loop
        self._signal = signal
        self._open: dict[SignalledGeneration, None] = {}
        loop.add_reader(signal.fileno(), self._read)

    def add(
        self, running: InFlightGeneration, receiver: DeltaReceiver, *, with_logprobs: bool, with_embedding: bool
    ) -> SignalledGeneration:
        generation = SignalledGeneration(running, receiver, with_logprobs=with_logprobs, with_embedding=with_embedding)
        self._open[generation] = None
        running.raise_signal(self._signal)
        return generation

    def close(self) -> None:
        """Read what is there for the last time; what still runs is cancelled, since nobody will read it."""
        if not self.loop.is_closed():
            self.loop.remove_reader(self._signal.fileno())
            self._read()
        for generation in self._open:
            generation.cancel()
        self._open.clear()

    def _read(self) -> None:
        self._signal.clear()
        for generation in tuple(self._open):
            if generation.read():
                del self._open[generation]


class SignalledGeneration:
    """One request that the event loop reads without waiting."""

    __slots__ = ("_last", "_receiver", "_running", "_with_embedding", "_with_logprobs")

    def __init__(
        self, running: InFlightGeneration, receiver: DeltaReceiver, *, with_logprobs: bool, with_embedding: bool
    ) -> None:
        self._running = running
        self._receiver = receiver
        self._with_logprobs = with_logprobs
        self._with_embedding = with_embedding
        self._last: StreamDelta | None = None

    def cancel(self) -> None:
        self._running.cancel()

    def forward_to(self, frames: DeltaFrames) -> bool:
        """Let the runtime write chunks of text to ``frames`` itself, from ``resume_forwarding`` until one waits here.

        False where chunks say more than text.
        """
        if self._with_logprobs or self._with_embedding:
            return False
        self._running.forward_to(frames)
        return True

    def resume_forwarding(self) -> None:
        """Call it once everything that the receiver took has been sent."""
        self._running.resume_forwarding()

    def read(self) -> bool:
        """Pass on what has come, as one delta. True when the runtime has let go and the receiver knows."""
        try:
            chunks, ended = self._running.poll()
            if len(chunks) == 1 and not self._with_logprobs and not chunks[0].finished:
                # Its counts are those of the finished one: reading each field has its price.
                self._receiver.take_text(chunks[0].text, chunks[0].token_ids)
            elif chunks:
                self._pass_on([to_delta(chunk) for chunk in chunks])
            if not ended:
                return False
            error = _how_it_ended(self._running, self._last)
            if error is None and self._with_embedding and self._last is not None:
                self._receiver.take(_with_embedding(self._running, self._last))
        except Exception:  # the receiver waits for the end: whatever happened, it has to hear of it
            _log.exception("a generation could not be read")
            self._running.cancel()
            error = GenerationError("the request could not be finished")
        self._receiver.ended(error)
        return True

    def _pass_on(self, deltas: list[StreamDelta]) -> None:
        last = deltas[-1]
        if last.finished:
            self._last = last
            # A vector comes with the result: the delta that it belongs to waits for it.
            if last.finish_reason in _UNFINISHED_REASONS or self._with_embedding:
                deltas.pop()
        if deltas:
            self._receiver.take(merge_deltas(deltas))


class PumpedGeneration:
    """One request whose chunks a thread waits for; what it hands over while the loop is busy is merged."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        running: RunningGeneration,
        receiver: DeltaReceiver,
        *,
        with_embedding: bool = False,
    ) -> None:
        self._with_embedding = with_embedding
        self._loop = loop
        self._running = running
        self._receiver = receiver
        self._handing_over = threading.Lock()
        self._waiting: list[StreamDelta] = []
        self._delivery_is_due = False

    def cancel(self) -> None:
        self._running.cancel()

    def pump(self) -> None:
        """Runs on a thread of the lane until the runtime has let go of the request."""
        error: EdgeLLMError | None = None
        try:
            last = self._pump_chunks()
            error = _how_it_ended(self._running, last)
            if error is None and self._with_embedding and last is not None:
                self._hand_over(_with_embedding(self._running, last))
        except Exception:  # the receiver waits for this thread: whatever happened, it has to hear of the end
            _log.exception("a generation's pump failed")
            self._running.cancel()
            error = GenerationError("the request could not be finished")
        self._call_loop(self._end, error)

    def _pump_chunks(self) -> StreamDelta | None:
        while (delta := self._running.next_delta()) is not None:
            waits_for_its_vector = delta.finished and self._with_embedding
            if not waits_for_its_vector and (not delta.finished or delta.finish_reason not in _UNFINISHED_REASONS):
                self._hand_over(delta)
            if delta.finished:
                return delta
        return None

    def _hand_over(self, delta: StreamDelta) -> None:
        with self._handing_over:
            self._waiting.append(delta)
            is_due, self._delivery_is_due = self._delivery_is_due, True
        if not is_due:
            self._call_loop(self._deliver)
        elif self._loop.is_closed():  # nobody will come for it
            self._running.cancel()

    def _call_loop(self, callback: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop was closed under us: nobody is left to tell
            self._running.cancel()

    # On the loop

    def _deliver(self) -> None:
        with self._handing_over:
            deltas, self._waiting = self._waiting, []
            self._delivery_is_due = False
        if deltas:
            self._receiver.take(merge_deltas(deltas))

    def _end(self, error: EdgeLLMError | None) -> None:
        self._deliver()
        self._receiver.ended(error)


class Acceptance:
    """The receiver in front of another one where a runtime refuses late: an end before any delta is a refusal."""

    def __init__(self, receiver: DeltaReceiver) -> None:
        loop = asyncio.get_running_loop()
        self._receiver: DeltaReceiver | None = receiver
        self._decision: asyncio.Future[EdgeLLMError | None] = loop.create_future()
        self._let_go: asyncio.Future[None] = loop.create_future()

    def take(self, delta: StreamDelta) -> None:
        if not self._decision.done():
            self._decision.set_result(None)
        if self._receiver is not None:
            self._receiver.take(delta)

    def take_text(self, text: str, token_ids: list[int]) -> None:
        self.take(StreamDelta(text, token_ids))

    def ended(self, error: EdgeLLMError | None) -> None:
        self._let_go.set_result(None)
        if not self._decision.done():
            self._decision.set_result(error)
            if error is not None:
                return
        if self._receiver is not None:
            self._receiver.ended(error)

    async def decided(self, cancel: Callable[[], None]) -> None:
        """Return at the first sign of life. When it raises, the receiver hears nothing and the runtime has let go.

        A caller that is cancelled meanwhile takes the request with it, by ``cancel``.
        """
        try:
            error = await asyncio.shield(self._decision)
        except asyncio.CancelledError:
            self._receiver = None
            cancel()
            await self._let_go
            raise
        if error is not None:
            raise error


def _with_embedding(running: RunningGeneration, last: StreamDelta) -> StreamDelta:
    """The finished delta of a request that has ended, with its vector."""
    return replace(last, embedding=embedding_bytes(running.result()))


def _how_it_ended(running: RunningGeneration, last: StreamDelta | None) -> EdgeLLMError | None:
    """Wait until the runtime has let go; ``last`` is the finished delta, if there was one."""
    try:
        response = running.result()
    except EdgeLLMError as error:
        return error
    if last is not None:
        reason = last.finish_reason
    else:
        reason = finish_reason_name(response.finish_reasons[0]) if response.finish_reasons else None
    if reason == "cancelled":
        return RequestCancelledError("the request was cancelled")
    # A text whose end nobody announced did not end well, whatever else the runtime says.
    if last is None or reason == "error":
        return GenerationError("the runtime could not finish this request")
    return None
