"""A worker process: owns one runtime with one model and serves it over the socketpair it was started with.

Its event loop never waits for the model, so pings are answered while it loads and while it computes.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NoReturn, cast

import msgspec
import uvloop

from edgellm import __version__
from edgellm.engines.progress import Progress
from edgellm.errors import EdgeLLMError
from edgellm.runtime.llm import LLM
from edgellm.runtime.load_transcriber import load_transcriber
from edgellm.runtime.transcriber import Transcriber
from edgellm.runtime.tts import TTS
from edgellm.serving.error_frames import error_frames
from edgellm.serving.in_process_lane import InProcessLane
from edgellm.serving.sequential_lane import SequentialLane
from edgellm.serving.speech import SpeakingModel
from edgellm.serving.transcription import TranscribingModel
from edgellm.serving.worker.frames import FrameError, FrameReader
from edgellm.serving.worker.media_socket import MediaInbox
from edgellm.serving.worker.messages import (
    PROTOCOL_VERSION,
    Cancel,
    Count,
    Credit,
    Hello,
    Loading,
    LogLevel,
    NotLoaded,
    Ping,
    Pong,
    Ready,
    Shutdown,
    Submit,
    ToWorker,
)
from edgellm.serving.worker.outlet import Outlet
from edgellm.serving.worker.streams import WorkerStreams

EXIT_OK = 0
EXIT_PROTOCOL = 76
# The kernel takes a worker before the daemon and before sshd when memory runs out.
OOM_SCORE_ADJUSTMENT = 500
_PR_SET_PDEATHSIG = 1

_LOADED_WITH: Mapping[str, Callable[..., LLM | Transcriber | TTS]] = {"asr": load_transcriber, "tts": TTS}

_log = logging.getLogger(__name__)


class Worker(asyncio.Protocol):
    """The worker's end of the socketpair, and the model once it is loaded. ``exit_code`` is set when it is over."""

    def __init__(self, configure_logs: Callable[[Hello], None], descriptor: int) -> None:
        self._configure_logs = configure_logs
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._outlet: Outlet | None = None
        self._reader: FrameReader[ToWorker] = FrameReader(ToWorker)  # type: ignore[arg-type]  # a union of types
        self._lane: InProcessLane | SequentialLane | None = None
        self._streams: WorkerStreams | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.exit_code: asyncio.Future[int] = self._loop.create_future()

    def send(self, message: msgspec.Struct) -> None:
        """Raises FrameTooLargeError."""
        if self._outlet is not None:
            self._outlet.send(message)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._outlet = Outlet(cast("asyncio.Transport", transport))

    def connection_lost(self, exc: Exception | None) -> None:
        """The front end is gone, however it ended: nobody is left to work for."""
        if self._outlet is not None:
            self._outlet.close()
        self._end(EXIT_OK)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._reader.feed(data):
                self._handle(message)
        except FrameError as error:
            _log.error("the front end sent something else than messages: %s", error)
            self._end(EXIT_PROTOCOL)
        except Exception as error:  # the loop would only log it, and whoever asked would wait for ever
            _log.error("a message could not be handled: %s", error_frames(error))
            self._end(EXIT_PROTOCOL)

    def _handle(self, message: ToWorker) -> None:
        streams = self._streams
        match message:
            case Ping():
                self.send(self._pong(message.number))
            case Hello():
                self._hello(message)
            case Shutdown():
                self._tasks.append(self._loop.create_task(self._close()))
            case LogLevel():
                logging.getLogger().setLevel(message.level.upper())
            case _ if streams is None:
                raise FrameError("a request came before the model was loaded")
            case Submit():
                streams.submit(message)
            case Cancel():
                streams.cancel(message)
            case Credit():
                streams.credit(message)
            case Count():
                streams.count(message)

    def _hello(self, hello: Hello) -> None:
        if hello.protocol != PROTOCOL_VERSION or hello.edgellm_version != __version__:
            self.send(
                NotLoaded(
                    "worker_failed",
                    f"the worker is edgellm {__version__} (protocol {PROTOCOL_VERSION}), the daemon "
                    f"{hello.edgellm_version} (protocol {hello.protocol}): restart the daemon after an upgrade",
                )
            )
            return
        self._configure_logs(hello)
        if hello.cpus:
            with suppress(OSError):  # a CPU that went offline: running anywhere beats not running
                os.sched_setaffinity(0, hello.cpus)
        self._tasks.append(self._loop.create_task(self._load(hello)))

    async def _load(self, hello: Hello) -> None:
        outlet = self._outlet
        if outlet is None:  # what loads a model came over the connection
            return
        try:
            load: Callable[..., LLM | Transcriber | TTS] = _LOADED_WITH.get(hello.kind, LLM)
            model = await asyncio.to_thread(load, **hello.arguments, on_progress=self._report)
        except EdgeLLMError as error:
            self.send(NotLoaded(error.code, str(error)))
            return
        except Exception as error:  # whatever loading raises, the front end has to hear of it
            _log.error("loading failed: %s", error_frames(error))
            self.send(NotLoaded("internal_error", f"loading failed ({type(error).__name__})"))
            return
        inbox = MediaInbox(hello.media_descriptor) if hello.media_descriptor >= 0 else None
        lane = _lane_over(model)
        self._lane = lane
        self._streams = WorkerStreams(lane, outlet, inbox)
        self.send(Ready(PROTOCOL_VERSION, model.capabilities, model.model_id, model.bundle_dir))
        frame_socket = lane.make_frame_socket(self._descriptor) if isinstance(lane, InProcessLane) else None
        if frame_socket is not None:
            outlet.hand_over(frame_socket)

    def _report(self, progress: Progress) -> None:
        """Called on the loading thread."""
        self._loop.call_soon_threadsafe(self.send, Loading(progress.message, progress.fraction))

    def _pong(self, number: int) -> Pong:
        if self._lane is None or self._streams is None:
            return Pong(number, 0, 0)
        counters = self._lane.counters()
        scheduling, cache = counters.scheduling, counters.context_cache
        return Pong(
            number,
            counters.steps_completed,
            self._streams.resident,
            None if scheduling is None else dict(scheduling),
            None if cache is None else dict(cache),
            None if counters.media is None else dict(counters.media),
        )

    async def _close(self) -> None:
        if self._streams is not None:
            self._streams.cancel_all()
        if self._lane is not None:
            await self._lane.close()
        self._end(EXIT_OK)

    def _end(self, exit_code: int) -> None:
        if not self.exit_code.done():
            self.exit_code.set_result(exit_code)


def _lane_over(model: LLM | Transcriber | TTS) -> InProcessLane | SequentialLane:
    match model:
        case LLM():
            return InProcessLane(model)
        case TTS():
            return SequentialLane(SpeakingModel(model))
        case _:
            return SequentialLane(TranscribingModel(model))


def run_worker(descriptor: int, configure_logs: Callable[[Hello], None]) -> NoReturn:
    """Serve on the socket ``descriptor`` and end the process; also when the front end ends, however it does."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died in between
        os._exit(EXIT_OK)
    # The terminal's interrupt is for the daemon, which then says what is to happen here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as stream:
        stream.write(str(OOM_SCORE_ADJUSTMENT))

    async def serve() -> int:
        connected = socket.socket(fileno=descriptor)
        connected.setblocking(False)
        worker = Worker(configure_logs, connected.fileno())
        await asyncio.get_running_loop().create_unix_connection(lambda: worker, sock=connected)
        return await worker.exit_code

    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    code = runner.run(serve())
    # Threads may still be inside native code for somebody who is gone: nothing of this process is worth waiting for.
    sys.stderr.flush()
    os._exit(code)
