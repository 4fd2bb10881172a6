"""WorkerStreams: the requests of a worker, each from its Submit to its Final, over the lane that runs them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from edgellm.errors import EdgeLLMError, GenerationError, RequestCancelledError, WorkerFailedError
from edgellm.media.media_file import MediaFile
from edgellm.runtime.contract import DeltaFrames
from edgellm.runtime.deltas import merge_deltas, split_sound
from edgellm.runtime.outputs import StreamDelta
from edgellm.serving.error_frames import error_frames, without_frames
from edgellm.serving.in_process_generation import SignalledGeneration
from edgellm.serving.lane import Lane, LaneGeneration
from edgellm.serving.worker.conversion import to_delta_message, to_failure, to_request
from edgellm.serving.worker.frames import FrameError, FrameTooLargeError
from edgellm.serving.worker.media_socket import MediaInbox
from edgellm.serving.worker.messages import Accepted, Cancel, Count, Counted, Credit, Failure, Final, Submit
from edgellm.serving.worker.outlet import Outlet

_log = logging.getLogger(__name__)

# Deltas of one stream that may be under way; what comes beyond them is merged here until the front end took some.
WINDOW_DELTAS = 256
SOUND_BYTES_A_FRAME = 1 << 20  # of a delta, which may be several merged ones


class WorkerStreams:
    """Starts, cancels and ends requests on one lane. Used from the worker's event loop only."""

    def __init__(self, lane: Lane, outlet: Outlet, inbox: MediaInbox | None = None) -> None:
        self._lane = lane
        self._inbox = inbox
        self._outlet = outlet
        self._streams: dict[int, _Stream] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def resident(self) -> int:
        return len(self._streams)

    def submit(self, message: Submit) -> None:
        """Raises FrameError for one whose files did not come."""
        files: list[MediaFile] = []
        if message.media:
            if self._inbox is None:
                raise FrameError("a file came for a model that takes none")
            files = self._inbox.take(sum(medium.files for medium in message.media))
        stream = _Stream(message.stream, self._outlet, self._ended)
        self._streams[message.stream] = stream
        stream.starting = self._begin(self._submit(stream, message, files))

    def cancel(self, message: Cancel) -> None:
        stream = self._streams.get(message.stream)
        if stream is not None:
            stream.cancel()

    def credit(self, message: Credit) -> None:
        stream = self._streams.get(message.stream)
        if stream is not None:
            stream.credit(message.deltas)

    def count(self, message: Count) -> None:
        self._begin(self._count(message))

    def cancel_all(self) -> None:
        for stream in list(self._streams.values()):
            stream.cancel()

    async def _submit(self, stream: _Stream, message: Submit, files: Sequence[MediaFile]) -> None:
        error: EdgeLLMError
        try:
            stream.attach(await self._lane.submit(to_request(message, files), stream))
        except EdgeLLMError as raised:
            error = without_frames(raised)
        except asyncio.CancelledError:
            error = RequestCancelledError("the request was cancelled")
        except Exception as raised:  # nobody else hears of it; the front end has to
            _log.error("a request failed in the worker: %s", error_frames(raised))
            error = GenerationError("the request could not be finished")
        else:
            return
        stream.ended(error)

    async def _count(self, message: Count) -> None:
        tokens: int | None = None
        failure: Failure | None = None
        try:
            tokens = await self._lane.count_tokens(to_request(message))
        except EdgeLLMError as error:
            failure = to_failure(error)
        except Exception as error:  # the front end waits for an answer
            _log.error("counting a prompt failed in the worker: %s", error_frames(error))
            failure = to_failure(GenerationError("the prompt could not be counted"))
        self._outlet.send(Counted(message.number, tokens, failure))

    def _begin(self, work: object) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _ended(self, number: int) -> None:
        self._streams.pop(number, None)


class _Credit:
    """Credit of a stream whose generation writes nothing itself."""

    def __init__(self, deltas: int) -> None:
        self._deltas = deltas

    def take_credit(self) -> bool:
        if self._deltas <= 0:
            return False
        self._deltas -= 1
        return True

    def add_credit(self, deltas: int) -> None:
        self._deltas += deltas


class _Stream:
    """One request: the receiver of its deltas, which go out as frames as long as the front end takes them.

    What the generation writes itself never comes here. It stops writing with the first delta that does, and goes on
    once that one has been sent.
    """

    def __init__(self, number: int, outlet: Outlet, on_end: Callable[[int], None]) -> None:
        self._number = number
        self._outlet = outlet
        self._on_end = on_end
        self._frames = outlet.delta_frames(number, WINDOW_DELTAS)
        self._credit: DeltaFrames | _Credit = self._frames or _Credit(WINDOW_DELTAS)
        self._writer: SignalledGeneration | None = None
        self._held_back: list[StreamDelta] = []
        self._generation: LaneGeneration | None = None
        self._is_accepted = False
        self._has_ended = False
        self.starting: asyncio.Task[None] | None = None

    def attach(self, generation: LaneGeneration) -> None:
        self._generation = generation
        self._accept()
        if (
            self._frames is not None
            and isinstance(generation, SignalledGeneration)
            and generation.forward_to(self._frames)
        ):
            self._writer = generation
            self._resume_writing()

    def cancel(self) -> None:
        if self._generation is not None:
            self._generation.cancel()
        elif self.starting is not None:
            self.starting.cancel()

    def credit(self, deltas: int) -> None:
        self._credit.add_credit(deltas)
        if self._held_back and self._credit.take_credit():
            self._send_held_back()
        self._resume_writing()

    # DeltaReceiver

    def take(self, delta: StreamDelta) -> None:
        self._accept()
        if self._held_back or not self._credit.take_credit():
            self._held_back.append(delta)
            return
        self._send_delta(delta)
        self._resume_writing()

    def take_text(self, text: str, token_ids: list[int]) -> None:
        self.take(StreamDelta(text, token_ids))

    def ended(self, error: EdgeLLMError | None) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        if error is None:
            self._accept()
        self._send_held_back()
        self._on_end(self._number)
        failure = None if error is None else to_failure(error)
        self._outlet.send(Final(self._number, failure, runtime_is_broken=isinstance(error, WorkerFailedError)))

    def _accept(self) -> None:
        if not self._is_accepted:
            self._is_accepted = True
            self._outlet.send(Accepted(self._number))

    def _resume_writing(self) -> None:
        if self._writer is not None and not self._held_back:
            self._writer.resume_forwarding()

    def _send_held_back(self) -> None:
        if self._held_back:
            merged = merge_deltas(self._held_back)
            self._held_back = []
            self._send_delta(merged)

    def _send_delta(self, delta: StreamDelta) -> None:
        try:
            for piece in split_sound(delta, SOUND_BYTES_A_FRAME):
                self._outlet.send(to_delta_message(self._number, piece))
        except FrameTooLargeError:
            _log.error("a piece of an answer was too large for a frame")
            self.cancel()
            self.ended(GenerationError("a piece of the answer was too large to send"))
