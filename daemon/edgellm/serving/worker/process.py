"""WorkerProcess: one worker as the front end sees it, from the fork to the moment it is reaped.

However it ends (a crash, a signal, garbage on the socket, silence, no progress), it ends once, with a reason: the
process is killed, and everything that waited for it hears of the loss.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from edgellm import __version__
from edgellm.config.model_kind import ModelKind
from edgellm.errors import WorkerFailedError
from edgellm.media.media_file import MediaFile
from edgellm.serving.error_frames import error_frames
from edgellm.serving.worker.conversion import load_error
from edgellm.serving.worker.frames import FrameError, FrameReader, FrameWriter
from edgellm.serving.worker.media_socket import MediaSocket
from edgellm.serving.worker.memory_watch import MACHINE_MEMORY
from edgellm.serving.worker.messages import (
    PROTOCOL_VERSION,
    Delta,
    Hello,
    Loading,
    LogLevel,
    NotLoaded,
    Ping,
    Pong,
    Ready,
    Shutdown,
    ToFrontEnd,
)
from edgellm.serving.worker.settings import WorkerSettings, WorkerSpec

_log = logging.getLogger(__name__)

_KINDS_THAT_TAKE_FILES: frozenset[ModelKind] = frozenset({"auto", "chat", "asr"})

OnMessage = Callable[[ToFrontEnd], None]
OnDelta = Callable[[Delta], None]


class WorkerProcess(asyncio.Protocol):
    """Used from one event loop. ``on_delta`` and ``on_message`` get what concerns single requests."""

    def __init__(self, spec: WorkerSpec, settings: WorkerSettings, on_loading: Callable[[Loading], None]) -> None:
        self.spec = spec
        self._settings = settings
        self._on_loading = on_loading
        self._loop = asyncio.get_running_loop()
        self._reader: FrameReader[ToFrontEnd] = FrameReader(ToFrontEnd)  # type: ignore[arg-type]  # a union of types
        self._writer = FrameWriter()
        self._transport: asyncio.Transport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._media: MediaSocket | None = None
        self._ready: asyncio.Future[Ready] = self._loop.create_future()
        self._exited = asyncio.Event()
        self._is_lost = False
        self._said_when_lost = "The model's worker failed."
        self._on_lost: list[Callable[[], None]] = []
        self._closing = False
        self.was_killed = False
        """It did not end when it was told to."""
        self._health: asyncio.TimerHandle | None = None
        self._pings = 0
        self._last_pong_seconds = 0.0
        self._last_step_seconds = 0.0
        self.last_pong: Pong | None = None
        self.on_message: OnMessage = lambda message: None
        self.on_delta: OnDelta = lambda message: None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def has_exited(self) -> bool:
        return self._exited.is_set()

    @property
    def is_lost(self) -> bool:
        return self._is_lost

    def when_lost(self, callback: Callable[[], None]) -> None:
        """Call back once, at the moment it is found to be gone, in the order of registration; never after close()."""
        if self._is_lost:
            self._loop.call_soon(callback)
        else:
            self._on_lost.append(callback)

    async def start(self) -> Ready:
        """Return once the model is loaded. Raises the error it could not be loaded with, WorkerFailedError if it died.

        A caller that is cancelled leaves no process behind.
        """
        ours, theirs = socket.socketpair()
        media = MediaSocket() if self.spec.kind in _KINDS_THAT_TAKE_FILES else None
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: ASYNC220, S603  # returns after the fork; our own command
                    [*self.spec.command, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno(), *([media.worker_end.fileno()] if media else [])],
                    process_group=0,
                )
        except OSError as error:
            ours.close()
            if media is not None:
                media.close()
            raise WorkerFailedError(f"the worker of {self.spec.name} could not be started: {error.strerror}") from error
        media_descriptor = -1
        if media is not None:
            media_descriptor = media.worker_end.fileno()
            media.worker_end.close()
            self._media = media
        self._pidfd = os.pidfd_open(self._process.pid)
        MACHINE_MEMORY.add(self)
        self._loop.add_reader(self._pidfd, self._reap)
        ours.setblocking(False)
        await self._loop.create_unix_connection(lambda: self, sock=ours)
        self.send(
            Hello(
                PROTOCOL_VERSION,
                __version__,
                self.spec.arguments,
                list(self.spec.cpus),
                self.spec.log_level,
                self.spec.log_format,
                self.spec.log_to_journal,
                self.spec.kind,
                media_descriptor,
            )
        )
        self._last_pong_seconds = self._last_step_seconds = time.monotonic()
        self._check_health()
        try:
            return await asyncio.shield(self._ready)
        except BaseException:
            await self.kill()
            raise

    def send(self, message: msgspec.Struct, files: Sequence[MediaFile] = ()) -> None:
        """Without effect on a worker that is gone. Raises FrameTooLargeError.

        ``files`` go before the message that they belong to. Raises ServerBusyError where no more of them fit.
        """
        frame = self._writer.frame(message)
        if files and self._media is not None and not self._is_lost:
            self._media.send(files)
        if self._transport is not None and not self._is_lost:
            self._transport.write(frame)

    def log_at(self, level: str) -> None:
        self.send(LogLevel(level))

    def end_for_memory(self, reason: str) -> None:
        """Give it up because others need the memory more; its requests are told so."""
        if not self._is_lost:
            self._said_when_lost = "The model's worker was ended because it took too much memory."
            self.fail(reason)

    def lost_error(self) -> WorkerFailedError:
        """What a request hears whose worker is gone; the log has the reason."""
        return WorkerFailedError(self._said_when_lost)

    def fail(self, reason: str) -> None:
        """Give the worker up: it is killed, and whoever waits for it hears why. Idempotent."""
        if self._is_lost:
            return
        self._is_lost = True
        MACHINE_MEMORY.remove(self)
        if self._health is not None:
            self._health.cancel()
        self._signal(signal.SIGKILL)
        if self._transport is not None:
            self._transport.close()
        if self._media is not None:
            self._media.close()
        if not self._closing:
            _log.error("worker of %s (pid %d): %s", self.spec.name, self.pid, reason)
        if not self._ready.done():
            remedy = _WITHOUT_MEMORY if reason == _exit_reason(-signal.SIGKILL) else ""
            lost = WorkerFailedError(f"the worker of {self.spec.name} {reason} while it loaded{remedy}")
            self._ready.set_exception(lost)
            self._ready.exception()
        callbacks, self._on_lost = self._on_lost, []
        for callback in callbacks:
            callback()

    async def close(self) -> None:
        """The protocol's shutdown, then SIGTERM, then SIGKILL; returns once the process is reaped. Idempotent."""
        self._closing = True
        self._on_lost = []
        settings = self._settings
        if self._process is None or self._exited.is_set():
            return
        if self._health is not None:
            self._health.cancel()  # from here on its time is what this leaves it
        self.send(Shutdown())
        if await self._exits_within(settings.shutdown_grace_seconds):
            return
        self._signal(signal.SIGTERM)
        if not await self._exits_within(settings.terminate_grace_seconds):
            _log.error("worker of %s (pid %d) did not end when it was told to: killed", self.spec.name, self.pid)
            self.was_killed = True
            self._signal(signal.SIGKILL)
            await self._exited.wait()

    async def _exits_within(self, limit_seconds: float) -> bool:
        try:
            async with asyncio.timeout(limit_seconds):
                return await self._exited.wait()
        except TimeoutError:
            return False

    async def kill(self) -> None:
        """End it now; returns once it is reaped."""
        self._closing = True
        self.fail("was stopped")
        await self.exited()

    async def exited(self) -> None:
        """Return once the process is reaped: only then is its memory free again."""
        if self._process is not None:
            await self._exited.wait()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # that of a stream socket

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._reader.feed(data):
                if isinstance(message, Delta):  # by far the most frequent
                    self.on_delta(message)
                else:
                    self._received(message)
        except FrameError as error:
            self.fail(f"sent what is no message ({error})")
        except Exception as error:  # the loop would only log it, and the requests would wait for ever
            self.fail(f"sent what could not be handled ({error_frames(error)})")

    def connection_lost(self, exc: Exception | None) -> None:
        # The exit says more than the closed socket; where none comes, the socket has to do.
        if not self._closing:
            self._loop.call_later(self._settings.ping_interval_seconds, self.fail, "closed its connection")

    # What came, and what did not

    def _received(self, message: ToFrontEnd) -> None:
        match message:
            case Pong():
                self._ponged(message)
            case Loading():
                self._on_loading(message)
            case Ready():
                if not self._ready.done():
                    MACHINE_MEMORY.loaded(self, message.capabilities.runtime)
                    self._ready.set_result(message)
            case NotLoaded():
                if not self._ready.done():
                    self._ready.set_exception(load_error(message.code, message.message))
            case _:
                self.on_message(message)

    def _ponged(self, pong: Pong) -> None:
        now = time.monotonic()
        self._last_pong_seconds = now
        last = self.last_pong
        if last is None or pong.resident == 0 or pong.steps_completed != last.steps_completed:
            self._last_step_seconds = now
        self.last_pong = pong

    def _check_health(self) -> None:
        settings, now = self._settings, time.monotonic()
        has_answered = self.last_pong is not None
        deadline_seconds = settings.ping_deadline_seconds if has_answered else settings.start_deadline_seconds
        if now - self._last_pong_seconds > deadline_seconds:
            self.fail(f"did not answer for {deadline_seconds:g} s")
            return
        if now - self._last_step_seconds > settings.step_deadline_seconds:
            self.fail(f"made no step for {settings.step_deadline_seconds:g} s with requests to work on")
            return
        MACHINE_MEMORY.check(
            self,
            worker_bytes_max=settings.memory_bytes_max,
            available_bytes_min=settings.available_memory_bytes_min,
        )
        if self._is_lost:
            return
        self._pings += 1
        self.send(Ping(self._pings))
        self._health = self._loop.call_later(settings.ping_interval_seconds, self._check_health)

    def _reap(self) -> None:
        process = self._process
        if process is None or process.poll() is None:
            return
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._exited.set()
        self.fail(_exit_reason(process.returncode))

    def _signal(self, number: signal.Signals) -> None:
        # Not reaped yet, so the number is still its own.
        if self._process is not None and not self._exited.is_set():
            self._process.send_signal(number)


# Nobody else kills a worker that loads.
_WITHOUT_MEMORY = (
    ", as the kernel does when memory runs out — give the service more memory (MemoryMax=), or load a smaller model or "
    "a shorter context"
)


def _exit_reason(returncode: int) -> str:
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    try:
        return f"was ended by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was ended by signal {-returncode}"
