"""The process that decodes for a worker. It does nothing but start a process for each job, which ends with the job.

Files of clients are met by large decoders in C. Each job has memory, time and a life of its own, so that what goes
wrong in it ends there. The process that starts them has the decoders imported, and no threads: a job begins in
milliseconds.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from edgellm.errors import RequestError, UnsupportedModalityError
from edgellm.media.decoding_messages import (
    MESSAGE_BYTES_MAX,
    Begun,
    Decoded,
    Failed,
    Item,
    Job,
    Refused,
    encoded,
    job_of,
)
from edgellm.media.image_decoding import decode_rgb
from edgellm.media.limits import CHAT_AUDIO_SECONDS_MAX, FILES_MAX, ImageLimits
from edgellm.media.visual_budget import VisualBudget

IDLE_SECONDS = 300.0  # without a job; the worker starts another one when it needs it
OUT_OF_MEMORY_SCORE = 1000  # what it holds is worth less than anything else of the machine

RGB_BYTES = 3  # of a pixel

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_PAGES_FILE = "/proc/self/statm"


def main() -> NoReturn:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.settimeout(IDLE_SECONDS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a job's process: the kernel forgets it at once
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as stream:
        stream.write(str(OUT_OF_MEMORY_SCORE))
    _import_decoders()
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        except TimeoutError:
            os._exit(0)
        if not data or len(descriptors) != 1:  # whoever asked is gone
            os._exit(0)
        job_socket = socket.socket(fileno=descriptors[0])
        _start(control, job_socket)
        job_socket.close()


def _start(control: socket.socket, job_socket: socket.socket) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            control.close()
            _run(job_socket)
        finally:
            os._exit(0)
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:  # it is over already
        return
    try:
        socket.send_fds(job_socket, [encoded(Begun())], [descriptor])
    except OSError:  # the job is not wanted any more
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)


def _run(job_socket: socket.socket) -> None:
    library = ctypes.CDLL(None)
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    try:
        data, descriptors, _, _ = socket.recv_fds(job_socket, MESSAGE_BYTES_MAX, FILES_MAX)
        if not data:
            return
        job = job_of(data)
        _limit(job)
        _decode_all(job, descriptors, job_socket)
    except RequestError as error:
        job_socket.send(encoded(Refused(error.message, error.param, isinstance(error, UnsupportedModalityError))))
    except Exception as error:  # its words may quote the file
        job_socket.send(encoded(Failed(type(error).__name__)))


def _limit(job: Job) -> None:
    with open(_PAGES_FILE, encoding="ascii") as stream:
        taken_bytes = int(stream.read().split()[0]) * resource.getpagesize()
    memory_bytes = taken_bytes + job.memory_bytes_max
    seconds = max(1, round(job.seconds_max))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it would hold the file


def _decode_all(job: Job, descriptors: Sequence[int], job_socket: socket.socket) -> None:
    pixels_left = job.pixels_max
    waiting = list(descriptors)
    budget = _budget(job)
    for item in job.items:
        files, waiting = waiting[: item.files], waiting[item.files :]
        samples, told = decoded(item, [_content(file, item.place) for file in files], pixels_left, budget)
        if item.kind != "audio":
            pixels_left -= samples.size // RGB_BYTES
        if budget is not None and item is job.items[-1]:  # the whole request fits, or nothing of it is handed over
            budget.check(next(each.place for each in job.items if each.kind == "video"))
        memory = os.memfd_create("edgellm-decoded", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        _write_all(memory, samples)
        socket.send_fds(job_socket, [encoded(told)], [memory])
        os.close(memory)


def _budget(job: Job) -> VisualBudget | None:
    """Only where there is a video, and an engine that says what it takes."""
    kinds = [item.kind for item in job.items]
    rules = job.rules
    if rules is None or rules.family is None or rules.limits is None or "video" not in kinds:
        return None
    return VisualBudget(rules.limits, rules.family, kinds.count("image"))


def decoded(
    item: Item, contents: Sequence[mmap.mmap], pixels_left: int, budget: VisualBudget | None = None
) -> tuple[npt.NDArray[Any], Decoded]:
    """What comes out of the item's files, and what is told about it."""
    place = item.place
    if item.kind == "image":
        pixels = decode_rgb(contents[0], ImageLimits(request_pixels_left=pixels_left), place=place)
        return pixels, Decoded(list(pixels.shape), "uint8")
    if item.kind == "video":
        from edgellm.media.video_decoding import decode_frames, decode_video

        if len(contents) > 1:
            frames = decode_frames(contents, item.fps, pixels_left, place=place, budget=budget)
        else:
            _require_av(item)
            frames = decode_video(contents[0], item.fps, item.frames_max, pixels_left, place=place, budget=budget)
        told = Decoded(list(frames.pixels.shape), "uint8", frames.fps, list(frames.timestamps_seconds))
        return frames.pixels, told
    _require_av(item)
    sound = _sound(contents[0], place)
    return sound, Decoded(list(sound.shape), "float32")


def _sound(content: mmap.mmap, place: str) -> npt.NDArray[np.float32]:
    from edgellm.media.audio import samples_of

    pieces = list(samples_of(content, lambda: False, place=place, seconds_max=CHAT_AUDIO_SECONDS_MAX))
    samples = np.concatenate(pieces) if pieces else np.empty(0, np.float32)
    if not len(samples):
        raise RequestError(f"{place} holds no sound.", param=place)
    return samples


def _require_av(item: Item) -> None:
    try:
        import av  # noqa: F401
    except ImportError:
        raise UnsupportedModalityError(
            f"{item.place}: this server decodes no {item.kind}: its audio extra is not installed.", param=item.place
        ) from None


def _content(descriptor: int, place: str) -> mmap.mmap:
    size_bytes = os.fstat(descriptor).st_size
    if size_bytes == 0:
        raise RequestError(f"{place} is empty.", param=place)
    return mmap.mmap(descriptor, size_bytes, prot=mmap.PROT_READ)


def _write_all(descriptor: int, samples: npt.NDArray[Any]) -> None:
    view = np.ascontiguousarray(samples).reshape(-1).view(np.uint8).data
    while view:
        view = view[os.write(descriptor, view) :]


def _import_decoders() -> None:
    """Those of images; the ones of sound and video are large, and imported by the jobs that need them."""
    from PIL import (  # noqa: F401
        BmpImagePlugin,
        GifImagePlugin,
        JpegImagePlugin,
        PngImagePlugin,
        WebPImagePlugin,
    )


if __name__ == "__main__":
    main()
