"""A generation that the native runtime has accepted: its chunks, its cancellation and its end, on either path."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from edgellm.errors import EdgeLLMError, RequestCancelledError
from edgellm.runtime.contract import (
    DeltaFrames,
    GenerationResponse,
    RequestHandle,
    RuntimeModule,
    StreamChannel,
    StreamChunk,
    StreamSignal,
)
from edgellm.runtime.deltas import to_delta
from edgellm.runtime.native_errors import map_request_error
from edgellm.runtime.outputs import StreamDelta

# A wait ends at once on a chunk or a cancel; the tick only finds a request that ended without a word.
WAIT_TICK_MS = 200

OnReleased = Callable[[], None]


def _never() -> bool:
    return False


class RunningGeneration(Protocol):
    """One reader takes the chunks; every other method may be called from any thread."""

    @property
    def cancelled(self) -> bool:
        """The caller cancelled it."""
        ...

    def next_delta(self, given_up: Callable[[], bool] = ...) -> StreamDelta | None:
        """Wait for a delta; not to be called after the last one. None when no other will come.

        ``given_up`` is asked from time to time while this waits; once it holds, the generation is cancelled.
        """
        ...

    def cancel(self) -> None:
        """Stop it within one step and wake whoever waits. Idempotent."""
        ...

    def result(self) -> GenerationResponse:
        """Wait until the runtime has let go. Raises what went wrong, also when it was cancelled."""
        ...


def end_quietly(generation: RunningGeneration) -> None:
    """Wait until the runtime has let go; how it ended is of no interest any more."""
    try:
        generation.result()
    except EdgeLLMError:
        return


class InFlightGeneration:
    """A request of RequestEngine. ``on_released`` is called once: after the finished chunk, or when it has ended.

    A reader either waits with ``next_chunk``, or asks with ``poll`` after each signal.
    """

    def __init__(
        self, module: RuntimeModule, handle: RequestHandle, channel: StreamChannel, on_released: OnReleased
    ) -> None:
        self._module = module
        self._handle = handle
        self._channel = channel
        self._try_pop = channel.try_pop
        self._is_over = handle.ready
        self._on_released: OnReleased | None = on_released
        self._cancelled = False
        self._response: GenerationResponse | None = None
        self._error: Exception | None = None
        self._ending = threading.Lock()
        self._releasing = threading.Lock()

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def next_chunk(self, given_up: Callable[[], bool] = _never) -> StreamChunk | None:
        chunk = self._wait(given_up)
        if chunk is not None and chunk.finished:
            self._release()
        return chunk

    def next_delta(self, given_up: Callable[[], bool] = _never) -> StreamDelta | None:
        chunk = self.next_chunk(given_up)
        return None if chunk is None else to_delta(chunk)

    def raise_signal(self, signal: StreamSignal) -> None:
        """From now on with each chunk, and when the runtime has let go."""
        self._channel.set_signal(signal)  # type: ignore[attr-defined]  # there where the module has StreamSignal

    def forward_to(self, frames: DeltaFrames) -> None:
        """Chunks of text alone go there instead of to the reader, from ``resume_forwarding`` until one waits for it."""
        self._channel.forward_to(frames)  # type: ignore[attr-defined]  # there where the module has FrameSocket

    def resume_forwarding(self) -> None:
        self._channel.resume_forwarding()  # type: ignore[attr-defined]  # as above

    def poll(self) -> tuple[list[StreamChunk], bool]:
        """The chunks that have come, and whether the runtime has let go: then these are the last, and ``result()``
        does not wait.
        """
        ended = self._is_over()  # asked first: whatever was said before the end is there then
        try_pop = self._try_pop
        chunk = try_pop()
        if chunk is None:
            return [], ended
        chunks = [chunk]
        while (chunk := try_pop()) is not None:
            chunks.append(chunk)
        if chunks[-1].finished:
            self._release()
        return chunks, ended

    def cancel(self) -> None:
        self._cancelled = True
        self._handle.cancel()
        self._channel.cancel()

    def result(self) -> GenerationResponse:
        with self._ending:  # a handle gives its result once
            if self._response is None and self._error is None:
                try:
                    self._response = self._handle.get()
                except Exception as error:  # pybind raises whatever type the module registered
                    self._error = error
        self._release()
        if self._response is not None:
            return self._response
        assert self._error is not None  # noqa: S101  # one of the two was set above
        raise map_request_error(self._module, self._error, cancelled=self._cancelled) from self._error

    def _wait(self, given_up: Callable[[], bool]) -> StreamChunk | None:
        while True:
            chunk = self._channel.wait_pop(WAIT_TICK_MS)
            if chunk is not None:
                return chunk
            if given_up():
                self.cancel()
            if self._channel.is_cancelled():
                return None
            # The last chunk may have come between the wait and this question: look once more.
            if self._channel.is_finished() or self._handle.ready():
                return self._channel.try_pop()

    def _release(self) -> None:
        with self._releasing:
            on_released, self._on_released = self._on_released, None
        if on_released is not None:
            on_released()


class BlockingGeneration:
    """A call of LLMRuntime on a thread of its own. ``on_released`` is called once, when the call has returned."""

    def __init__(
        self,
        module: RuntimeModule,
        call: Callable[[], GenerationResponse],
        channel: StreamChannel,
        on_released: OnReleased,
    ) -> None:
        self._module = module
        self._call = call
        self._channel = channel
        self._on_released = on_released
        self._cancelled = False
        self._response: GenerationResponse | None = None
        self._error: Exception | None = None
        self._worker = threading.Thread(target=self._run, name="edgellm-generation", daemon=True)
        self._worker.start()

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def next_chunk(self, given_up: Callable[[], bool] = _never) -> StreamChunk | None:
        while True:
            chunk = self._channel.wait_pop(WAIT_TICK_MS)
            if chunk is not None:
                return chunk
            if given_up():
                self.cancel()
            if self._channel.is_cancelled():
                return None
            if self._channel.is_finished() or not self._worker.is_alive():
                return self._channel.try_pop()

    def next_delta(self, given_up: Callable[[], bool] = _never) -> StreamDelta | None:
        chunk = self.next_chunk(given_up)
        return None if chunk is None else to_delta(chunk)

    def cancel(self) -> None:
        self._cancelled = True
        self._channel.cancel()

    def result(self) -> GenerationResponse:
        self._worker.join()
        if self._response is not None:
            if self._cancelled and "CANCELLED" in [reason.name for reason in self._response.finish_reasons]:
                raise RequestCancelledError("the request was cancelled")
            return self._response
        error = self._error or RuntimeError("no response")
        raise map_request_error(self._module, error, cancelled=self._cancelled) from error

    def _run(self) -> None:
        try:
            self._response = self._call()
        except Exception as error:  # kept for result(): this thread has nobody to raise to
            self._error = error
            self._channel.cancel()
        finally:
            self._on_released()
