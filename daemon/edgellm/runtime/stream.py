"""GenerationStream: the iterator behind generate_stream."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from enum import Enum

from edgellm.errors import EdgeLLMError, RequestCancelledError
from edgellm.runtime.deltas import finish_reason_name
from edgellm.runtime.outputs import StreamDelta
from edgellm.runtime.running import RunningGeneration, end_quietly


class StreamState(Enum):
    PENDING = "pending"  # nothing has been asked of the runtime
    RUNNING = "running"
    FINISHED = "finished"  # the terminal delta is out; a late error may still surface
    CLOSED = "closed"  # by the caller
    ENDED = "ended"


StartGeneration = Callable[[Callable[[], bool]], RunningGeneration]


class GenerationStream(Iterator[StreamDelta]):
    """Lazy: nothing is checked or started before the first ``next()``.

    ``close()`` may come from any thread, also while another one is inside ``next()``; that one then stops. After the
    terminal delta it does nothing. A stream that is dropped half read is closed.

    ``start(given_up)`` checks, waits for admission and submits; ``wake()`` makes it look at ``given_up`` again.
    """

    def __init__(self, start: StartGeneration, wake: Callable[[], None]) -> None:
        self._start_generation = start
        self._wake = wake
        self._state = StreamState.PENDING
        self._generation: RunningGeneration | None = None
        self._changing = threading.Lock()
        self._reading = threading.Lock()

    def __iter__(self) -> GenerationStream:
        return self

    def __next__(self) -> StreamDelta:
        if not self._reading.acquire(blocking=False):
            raise ValueError("another thread is reading this stream")
        try:
            return self._next()
        except StopIteration:
            raise
        except EdgeLLMError:
            self._state = StreamState.ENDED
            raise
        except BaseException:
            self._abandon()
            raise
        finally:
            self._reading.release()

    def close(self) -> None:
        """Cancel what runs and return when the runtime has let go. Idempotent."""
        with self._changing:
            if self._state not in (StreamState.PENDING, StreamState.RUNNING):
                return
            self._state = StreamState.CLOSED
            generation = self._generation
        if generation is None:
            self._wake()
            return
        generation.cancel()
        end_quietly(generation)

    def __del__(self) -> None:
        # While the interpreter ends, the runtime's threads may be gone: there is nothing left to wait for.
        if not sys.is_finalizing():
            self.close()

    def _next(self) -> StreamDelta:
        if self._state is StreamState.PENDING:
            self._start()
        generation = self._generation
        if generation is None or self._state in (StreamState.CLOSED, StreamState.ENDED):
            raise StopIteration
        if self._state is StreamState.FINISHED:
            self._state = StreamState.ENDED
            generation.result()
            raise StopIteration
        delta = generation.next_delta()
        if delta is None:
            return self._end_without_terminal_chunk(generation)
        if delta.finished and not self._note_finished():
            raise StopIteration
        return delta

    def _start(self) -> None:
        try:
            generation = self._start_generation(lambda: self._state is StreamState.CLOSED)
        except RequestCancelledError:
            if self._state is StreamState.CLOSED:
                return
            raise
        with self._changing:
            self._generation = generation
            closed = self._state is StreamState.CLOSED
            if not closed:
                self._state = StreamState.RUNNING
        if closed:
            generation.cancel()
            end_quietly(generation)

    def _note_finished(self) -> bool:
        with self._changing:
            if self._state is not StreamState.RUNNING:
                return False
            self._state = StreamState.FINISHED
            return True

    def _end_without_terminal_chunk(self, generation: RunningGeneration) -> StreamDelta:
        """A text whose end nobody announced did not end well, whatever else the runtime says."""
        if self._state is StreamState.CLOSED:
            end_quietly(generation)
            raise StopIteration
        response = generation.result()
        self._state = StreamState.ENDED
        reasons = [finish_reason_name(reason) for reason in response.finish_reasons]
        return StreamDelta(finished=True, finish_reason="cancelled" if reasons == ["cancelled"] else "error")

    def _abandon(self) -> None:
        """An interrupt came out of the wait: leave nothing running behind."""
        generation = self._generation
        self._state = StreamState.ENDED
        if generation is not None:
            generation.cancel()
            end_quietly(generation)


class SpokenStream(GenerationStream):
    """The same with sound: the finished delta ends the text alone, and what is still said comes behind it.

    ``has_text`` False is for a text that is only said: no delta is finished.
    """

    def __init__(self, start: StartGeneration, wake: Callable[[], None], *, has_text: bool) -> None:
        super().__init__(start, wake)
        self._is_text_over = not has_text

    def _note_finished(self) -> bool:
        self._is_text_over = True
        return self._state is StreamState.RUNNING

    def _end_without_terminal_chunk(self, generation: RunningGeneration) -> StreamDelta:
        if self._state is StreamState.CLOSED or not self._is_text_over:
            return super()._end_without_terminal_chunk(generation)
        self._state = StreamState.ENDED
        generation.result()
        raise StopIteration
