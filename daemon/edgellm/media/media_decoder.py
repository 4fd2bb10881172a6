"""MediaDecoder: what a request brought becomes samples, in a process that can be killed."""

from __future__ import annotations

import logging
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from fcntl import F_ADD_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE, fcntl

import msgspec

from edgellm.errors import EdgeLLMError, GenerationError, RequestCancelledError, RequestError, UnsupportedModalityError
from edgellm.media.decoding_messages import (
    MESSAGE_BYTES_MAX,
    Begun,
    Decoded,
    Failed,
    FromDecoder,
    Item,
    Job,
    Refused,
    answer_of,
    encoded,
)
from edgellm.media.limits import DECODING_JOBS_MAX, DECODING_MEMORY_BYTES_MAX, DECODING_SECONDS_MAX
from edgellm.media.media_file import MediaFile
from edgellm.media.media_input import DecodedMedia, MediaInput
from edgellm.media.visual_limits import FRAMES_PER_SECOND, VisualRules

_log = logging.getLogger(__name__)

_PROCESS_MODULE = "edgellm.media.decoding_process"
_STARTS_MAX = 2  # of the process that starts the jobs' processes: it ends when it was idle
_JOB_MARK = b"j"  # a descriptor cannot travel without a byte


class MediaDecoder:
    """Its process starts with the first job. Thread-safe."""

    def __init__(
        self,
        seconds_max: float = DECODING_SECONDS_MAX,
        memory_bytes_max: int = DECODING_MEMORY_BYTES_MAX,
        rules: VisualRules | None = None,
        available_bytes: Callable[[], int | None] = lambda: None,
    ) -> None:
        """``rules`` are those of the engine that gets what is decoded. ``available_bytes`` tells what the machine has
        left, None where it does not say.
        """
        self.rules = rules
        self._available_bytes = available_bytes
        self._seconds_max = seconds_max
        self._memory_bytes_max = memory_bytes_max
        self._changing = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._is_closed = False

    def job(self, inputs: Sequence[MediaInput]) -> DecodingJob:
        """Nothing happens before its ``result``."""
        return DecodingJob(self, inputs, self._seconds_max, self._memory_for_a_job)

    def _memory_for_a_job(self) -> int:
        """A job may hold as much again in what comes out, and others run beside it: all of them must not take from the
        models what a file of a client is not worth.
        """
        available_bytes = self._available_bytes()
        if available_bytes is None:
            return self._memory_bytes_max
        return min(self._memory_bytes_max, available_bytes // (2 * DECODING_JOBS_MAX))

    @property
    def pid(self) -> int | None:
        """Of the process that starts the jobs' processes; None before the first job."""
        process = self._process
        return None if process is None else process.pid

    def close(self) -> None:
        """End the process and, with it, its jobs. Idempotent."""
        with self._changing:
            self._is_closed = True
            self._end_process()

    # For its jobs

    def connect(self) -> socket.socket:
        """The end of a socket that a process of its own listens to."""
        with self._changing:
            for _ in range(_STARTS_MAX):
                control = self._control or self._start_process()
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                try:
                    socket.send_fds(control, [_JOB_MARK], [theirs.fileno()])
                except OSError:  # it has just ended
                    ours.close()
                    self._end_process()
                else:
                    return ours
                finally:
                    theirs.close()
        raise GenerationError("media of this request could not be decoded", reason="the decoding process did not start")

    def _start_process(self) -> socket.socket:
        if self._is_closed:
            raise RequestCancelledError("the request was cancelled")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Threads of a linear algebra library would outlive no fork, and each takes memory that counts.
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-P", "-m", _PROCESS_MODULE, str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment
            )
        self._control = ours
        return ours

    def _end_process(self) -> None:
        process, control = self._process, self._control
        self._process = self._control = None
        if control is not None:
            control.close()
        if process is not None:
            process.kill()
            process.wait()


class DecodingJob:
    """``result`` is called once, from a thread that may wait; ``cancel`` from any."""

    def __init__(
        self,
        decoder: MediaDecoder,
        inputs: Sequence[MediaInput],
        seconds_max: float,
        memory_bytes_max: Callable[[], int],
    ) -> None:
        self._decoder = decoder
        self._inputs = inputs
        self._seconds_max = seconds_max
        self._memory_bytes_max = memory_bytes_max
        self._ending = threading.Lock()
        self._is_cancelled = False
        self._socket: socket.socket | None = None
        self._process_descriptor = -1

    def cancel(self) -> None:
        """Kill its process at once. Idempotent."""
        with self._ending:
            self._is_cancelled = True
            self._kill()

    def result(self) -> list[DecodedMedia]:
        """What came of the inputs, in their order. Raises RequestError with the place of the input that is wrong."""
        rules, kinds = self._decoder.rules, [each.kind for each in self._inputs]
        if rules is not None and "video" in kinds:
            rules.check(kinds, self._inputs[kinds.index("video")].place)
        for last in (False, True):
            with self._ending:
                self._check_wanted()
                self._socket = self._decoder.connect()
            try:
                return self._run(self._socket)
            except _NotBegunError:  # the process that should have started one was just ending
                if last:
                    raise GenerationError(
                        "media of this request could not be decoded", reason="no decoding process began"
                    ) from None
            finally:
                self._close()
        raise AssertionError("unreachable")

    def _run(self, connected: socket.socket) -> list[DecodedMedia]:
        descriptors = [_readable(file) for each in self._inputs for file in each.files]
        try:
            fps = _frames_per_second(self._decoder.rules)
            items = [Item(each.kind, each.place, len(each.files), fps=each.fps or fps) for each in self._inputs]
            job = Job(
                items,
                seconds_max=self._seconds_max,
                memory_bytes_max=self._memory_bytes_max(),
                rules=self._decoder.rules,
            )
            with suppress(BrokenPipeError, ConnectionResetError):
                socket.send_fds(connected, [encoded(job)], descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        deadline_seconds = time.monotonic() + self._seconds_max
        decoded: list[DecodedMedia] = []
        has_begun = False
        while len(decoded) < len(self._inputs):
            answer, descriptor = self._next(connected, deadline_seconds, decoded)
            match answer:
                case Begun():
                    has_begun = True
                    with self._ending:
                        self._process_descriptor = descriptor
                        self._check_wanted()
                case Decoded():
                    decoded.append(_taken(answer, descriptor, self._inputs[len(decoded)]))
                case Refused(message, param, is_modality):
                    raise (UnsupportedModalityError if is_modality else RequestError)(message, param=param)
                case Failed(error):
                    raise GenerationError("media of this request could not be decoded", reason=error)
                case None if not has_begun and not decoded:
                    with self._ending:
                        self._check_wanted()
                    raise _NotBegunError
                case None:
                    raise self._died(len(decoded))
        return decoded

    def _next(
        self, connected: socket.socket, deadline_seconds: float, decoded: Sequence[DecodedMedia]
    ) -> tuple[FromDecoder | None, int]:
        """None where its process is gone."""
        connected.settimeout(max(0.001, deadline_seconds - time.monotonic()))
        try:
            data, descriptors, _, _ = socket.recv_fds(connected, MESSAGE_BYTES_MAX, 1)
        except TimeoutError:
            place = self._inputs[len(decoded)].place
            raise RequestError(
                f"{place} takes too long to decode: {self._seconds_max:g} s may go by for all media of a request.",
                param=place,
            ) from None
        except OSError:
            return None, -1
        if not data:
            return None, -1
        try:
            return answer_of(data), descriptors[0] if descriptors else -1
        except (msgspec.DecodeError, msgspec.ValidationError):
            raise GenerationError("media of this request could not be decoded", reason="no message came") from None

    def _died(self, index: int) -> EdgeLLMError:
        with self._ending:
            if self._is_cancelled:
                return RequestCancelledError("the request was cancelled")
        place = self._inputs[index].place
        _log.warning("a decoding process ended before its file was decoded")
        return RequestError(
            f"{place} cannot be decoded: it takes more memory or time than a file may, or its decoder fails on it.",
            param=place,
        )

    def _check_wanted(self) -> None:
        if self._is_cancelled:
            self._kill()
            raise RequestCancelledError("the request was cancelled")

    def _kill(self) -> None:
        if self._process_descriptor >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process_descriptor, signal.SIGKILL)
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes whoever waits

    def _close(self) -> None:
        with self._ending:
            self._kill()
            if self._process_descriptor >= 0:
                os.close(self._process_descriptor)
                self._process_descriptor = -1
            if self._socket is not None:
                self._socket.close()
                self._socket = None


class _NotBegunError(Exception):
    """No process took the job."""


def _frames_per_second(rules: VisualRules | None) -> float:
    return FRAMES_PER_SECOND["qwen" if rules is None or rules.family is None else rules.family]


def _readable(file: MediaFile) -> int:
    """A descriptor through which the file cannot be changed: others use it too."""
    if file.fileno() < 0:  # its request has ended
        raise RequestCancelledError("the request was cancelled")
    return os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_CLOEXEC)


def _taken(answer: Decoded, descriptor: int, media: MediaInput) -> DecodedMedia:
    """The samples where they lie; sealed first, so that nobody takes the memory away under whoever reads it."""
    import numpy as np  # text alone needs none

    broken = GenerationError("media of this request could not be decoded", reason="its samples did not come whole")
    if descriptor < 0:
        raise broken
    try:
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
        samples_type = np.dtype(answer.sample_type)
        count = int(np.prod(answer.shape, dtype=np.int64))
        if count <= 0 or os.fstat(descriptor).st_size != count * samples_type.itemsize:
            raise broken
        memory = mmap.mmap(descriptor, count * samples_type.itemsize, prot=mmap.PROT_READ)
    except (OSError, TypeError):
        raise broken from None
    finally:
        os.close(descriptor)
    samples = np.frombuffer(memory, samples_type).reshape(answer.shape)
    return DecodedMedia(media.kind, media.place, samples, media.resizes, answer.fps, tuple(answer.timestamps_seconds))
