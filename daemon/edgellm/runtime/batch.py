"""Runs the prompts of one generate() call: each under its own permit, together as far as the runtime takes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from edgellm.errors import EdgeLLMError, RequestCancelledError
from edgellm.runtime.deltas import to_output
from edgellm.runtime.generation import GenerationRequest
from edgellm.runtime.outputs import CompletionOutput
from edgellm.runtime.running import RunningGeneration, end_quietly

StartGeneration = Callable[[GenerationRequest, Callable[[], bool]], RunningGeneration]


def generate_all(
    requests: Sequence[GenerationRequest], start: StartGeneration, wake: Callable[[], None], *, concurrency: int
) -> list[CompletionOutput]:
    """Give the outputs in the order of the requests. The first failure, or an interrupt, cancels the rest.

    ``start(request, given_up)`` may wait for admission; ``wake()`` makes it look at ``given_up`` again.
    """
    if len(requests) == 1:
        return [_complete(start(requests[0], lambda: False))]
    return _Batch(requests, start, wake).run(concurrency)


class _Batch:
    def __init__(self, requests: Sequence[GenerationRequest], start: StartGeneration, wake: Callable[[], None]) -> None:
        self._requests = requests
        self._start = start
        self._wake = wake
        self._outputs: list[CompletionOutput | None] = [None] * len(requests)
        self._errors: dict[int, EdgeLLMError] = {}
        self._running: set[RunningGeneration] = set()
        self._stopped = False
        self._lock = threading.Lock()

    def run(self, concurrency: int) -> list[CompletionOutput]:
        workers = min(concurrency, len(self._requests))
        with ThreadPoolExecutor(workers, thread_name_prefix="edgellm-generate") as pool:
            futures = [pool.submit(self._run_one, index) for index in range(len(self._requests))]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                self._stop()
                raise
        if self._errors:
            raise self._errors[min(self._errors)]
        return [output for output in self._outputs if output is not None]

    def _run_one(self, index: int) -> None:
        if self._stopped:
            return
        try:
            generation = self._start(self._requests[index], lambda: self._stopped)
            with self._lock:
                self._running.add(generation)
                stopped = self._stopped
            if stopped:
                generation.cancel()
            try:
                self._outputs[index] = _complete(generation)
            finally:
                with self._lock:
                    self._running.discard(generation)
        except RequestCancelledError as error:
            if not self._stopped:
                self._fail(index, error)
        except EdgeLLMError as error:
            self._fail(index, error)

    def _fail(self, index: int, error: EdgeLLMError) -> None:
        self._errors[index] = error
        self._stop()

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            running = list(self._running)
        self._wake()
        for generation in running:
            generation.cancel()


def _complete(generation: RunningGeneration) -> CompletionOutput:
    """Wait on the channel rather than on the result, so that an interrupt gets through and ends the request."""
    try:
        while (delta := generation.next_delta()) is not None:
            if delta.finished:
                break
        return to_output(generation.result())
    except EdgeLLMError:
        raise
    except BaseException:
        generation.cancel()
        end_quietly(generation)
        raise
