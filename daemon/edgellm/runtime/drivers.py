"""Drivers: the two ways to run requests on a loaded native runtime, behind one interface."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from edgellm.errors import ClosedError, RequestCancelledError
from edgellm.runtime.context_reuse_log import ContextReuseLog
from edgellm.runtime.contract import (
    FrameSocket,
    GenerationResponse,
    LLMRuntime,
    RequestEngine,
    RuntimeModule,
    StreamChannel,
    StreamSignal,
    media_counters,
    scheduling_counters,
)
from edgellm.runtime.native_errors import map_request_error
from edgellm.runtime.running import BlockingGeneration, InFlightGeneration, OnReleased, RunningGeneration, end_quietly

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ExecutorChoice:
    """``name`` is "" where the runtime does not say; ``device`` and ``reason`` are for people."""

    name: str = ""
    device: str = ""
    reason: str = ""


class Driver(Protocol):
    """Owns the native runtime object until close()."""

    in_flight: bool

    def make_signal(self) -> StreamSignal | None:
        """Give a signal that generations of this driver can raise; None where the runtime has none."""
        ...

    def make_frame_socket(self, descriptor: int) -> FrameSocket | None:
        """Give a socket that generations of this driver can write to themselves; None where the runtime has none."""
        ...

    def start(self, native_request: Any, channel: StreamChannel, on_released: OnReleased) -> RunningGeneration:
        """Hand the request to the runtime. Raises RequestError or AdmissionError for what it refuses at once.

        ``on_released`` is called exactly once when the runtime needs the request's place no more, and never when
        this raises.
        """
        ...

    def count_prompt_tokens(self, native_request: Any) -> int | None:
        """Count with the runtime's own tokenizer, where that is safe beside running requests."""
        ...

    def scheduling_metrics(self) -> Mapping[str, int] | None: ...

    def context_cache_metrics(self) -> Any | None:
        """Give the contract's ContextCacheMetrics, None where the cache is off or this path has none."""
        ...

    def media_metrics(self) -> Mapping[str, int] | None:
        """Give how many images were encoded, and their tokens; None before the first."""
        ...

    def steps_completed(self) -> int: ...

    def executor(self) -> ExecutorChoice:
        """Give what runs the model."""
        ...

    def drain(self) -> None:
        """Let accepted requests end and take no more."""
        ...

    def close(self) -> None:
        """Drop the runtime, once nothing runs on it."""
        ...


class InFlightDriver:
    """RequestEngine: thread-safe, several sequences at a time."""

    in_flight = True

    def __init__(self, module: RuntimeModule, engine: RequestEngine, *, context_cache: bool) -> None:
        self._module = module
        self._engine: RequestEngine | None = engine
        self._context_cache = context_cache
        # Whoever reads these may have stopped reading: drain() ends them on their behalf.
        self._running: weakref.WeakSet[InFlightGeneration] = weakref.WeakSet()

    def make_signal(self) -> StreamSignal | None:
        make = getattr(self._module, "StreamSignal", None)
        signal: StreamSignal | None = None if make is None else make()
        return signal

    def make_frame_socket(self, descriptor: int) -> FrameSocket | None:
        make = getattr(self._module, "FrameSocket", None)
        socket: FrameSocket | None = None if make is None else make(descriptor)
        return socket

    def start(self, native_request: Any, channel: StreamChannel, on_released: OnReleased) -> InFlightGeneration:
        engine = self._loaded()
        try:
            handle = engine.submit(native_request)
        except Exception as error:  # pybind raises whatever type the module registered
            raise map_request_error(self._module, error) from error
        generation = InFlightGeneration(self._module, handle, channel, on_released)
        self._running.add(generation)
        return generation

    def count_prompt_tokens(self, native_request: Any) -> int | None:
        try:
            return self._loaded().count_prompt_tokens(native_request)[0]
        except Exception as error:  # pybind raises whatever type the module registered
            raise map_request_error(self._module, error) from error

    def scheduling_metrics(self) -> dict[str, int]:
        return scheduling_counters(self._loaded())

    def context_cache_metrics(self) -> Any | None:
        read = getattr(self._loaded(), "get_context_cache_metrics", None)
        return read() if self._context_cache and read is not None else None

    def media_metrics(self) -> Mapping[str, int] | None:
        return media_counters(self._loaded())

    def steps_completed(self) -> int:
        return int(getattr(self._loaded(), "steps_completed", 0))

    def executor(self) -> ExecutorChoice:
        return _executor_of(self._loaded())

    def drain(self) -> None:
        engine = self._engine
        if engine is not None:
            engine.shutdown(self._module.ShutdownMode.DRAIN)
        for generation in list(self._running):
            end_quietly(generation)

    def close(self) -> None:
        self._engine = None

    def _loaded(self) -> RequestEngine:
        engine = self._engine
        if engine is None:
            raise ClosedError("this model was closed")
        return engine


class BlockingDriver:
    """LLMRuntime: one request at a time, under a lock of ours."""

    in_flight = False

    def __init__(self, module: RuntimeModule, runtime: LLMRuntime, *, context_cache: bool) -> None:
        self._module = module
        self._runtime: LLMRuntime | None = runtime
        self._context_cache = context_cache
        self._inference = threading.Lock()
        self._reuse_log = ContextReuseLog()
        self._requests_ended = 0
        self._media_snapshot: Mapping[str, int] | None = None
        # Read under the inference lock after each request, so that nobody who only looks ever waits for it.
        self._cache_snapshot = runtime.get_context_cache_metrics() if context_cache else None

    def make_signal(self) -> None:
        """A call that blocks keeps a thread anyway."""

    def make_frame_socket(self, descriptor: int) -> None:
        """Its chunks come out of a thread that waits for them."""

    def start(self, native_request: Any, channel: StreamChannel, on_released: OnReleased) -> BlockingGeneration:
        if self._runtime is None:
            raise ClosedError("this model was closed")

        def run() -> GenerationResponse:
            return self._run(lambda runtime: runtime.handle_request(native_request), channel.is_cancelled)

        return BlockingGeneration(self._module, run, channel, on_released)

    def call(self, function: Callable[[LLMRuntime], Result]) -> Result:
        """Call the runtime while nothing else does."""
        with self._inference:
            if self._runtime is None:
                raise ClosedError("this model was closed")
            return function(self._runtime)

    def speak(self, function: Callable[[LLMRuntime], Result], is_cancelled: Callable[[], bool]) -> Result:
        """Run a request that is not one of text alone: it leaves no line about context reuse."""
        return self._run(function, is_cancelled, logs_reuse=False)

    def count_prompt_tokens(self, native_request: Any) -> int | None:
        return None

    def scheduling_metrics(self) -> None:
        return None

    def context_cache_metrics(self) -> Any | None:
        return self._cache_snapshot

    def media_metrics(self) -> Mapping[str, int] | None:
        return self._media_snapshot

    def steps_completed(self) -> int:
        return self._requests_ended

    def executor(self) -> ExecutorChoice:
        return _executor_of(self._runtime)

    def drain(self) -> None:
        """Nothing is queued natively: callers hold their permits until they are done."""

    def close(self) -> None:
        with self._inference:
            self._runtime = None

    def _run(
        self, function: Callable[[LLMRuntime], Result], is_cancelled: Callable[[], bool], *, logs_reuse: bool = True
    ) -> Result:
        with self._inference:
            runtime = self._runtime
            if runtime is None:
                raise ClosedError("this model was closed")
            if is_cancelled():
                raise RequestCancelledError("the request was cancelled before it started")
            try:
                result = function(runtime)
            finally:
                self._requests_ended += 1
            self._media_snapshot = media_counters(runtime)
            if self._context_cache:
                self._record_reuse(runtime, logs=logs_reuse)
            return result

    def _record_reuse(self, runtime: LLMRuntime, *, logs: bool) -> None:
        metrics = runtime.get_context_cache_metrics()
        if metrics is not None:
            self._cache_snapshot = metrics
            self._reuse_log.record(metrics, logs=logs)


def _executor_of(native: Any) -> ExecutorChoice:
    read = getattr(native, "executor_info", None)
    if read is None:
        return ExecutorChoice()
    info = read()
    return ExecutorChoice(str(info.name), str(info.device), str(getattr(info, "reason", "")))
