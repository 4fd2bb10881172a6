"""A builder as a process of its own: watched while it runs, gone when not wanted, its output kept for diagnosis."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from edgellm.engines.resources.available_memory import available_memory_bytes
from edgellm.errors import BuildFailedError, InsufficientMemoryError

LAUNCHER = Path(__file__).with_name("build_launcher.py")
NICENESS = 10
POLL_SECONDS = 0.25
MAX_LINE_BYTES = 1 << 16
MAX_LOG_BYTES = 16 << 20
TAIL_BYTES = 4096
MEMORY_FLOOR_BYTES = 192 << 20
"""A build is ended when less than this is left for everything else on the machine."""

LineHandler = Callable[[str], None]
_Lines = queue.Queue[tuple[LineHandler, str] | None]


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """``floor_bytes`` must stay available on the machine; ``ceiling_bytes`` is what the builder may hold, None: any."""

    floor_bytes: int = MEMORY_FLOOR_BYTES
    ceiling_bytes: int | None = None


def run_build_process(
    command: Sequence[str],
    *,
    log: Path,
    locks: Sequence[int] = (),
    stdin: bytes = b"",
    on_line: LineHandler,
    on_log_line: LineHandler | None = None,
    environment: Mapping[str, str] | None = None,
    limits: MemoryLimits | None = None,
) -> int:
    """Run ``command`` (its program an absolute path) to its end and give its exit status, negative for a signal.

    Each line of its standard output goes to ``on_line``, on this thread; standard error goes line by line to
    ``on_log_line`` and to the file ``log``, which keeps its first ``MAX_LOG_BYTES``. The process inherits ``locks``,
    is killed with everything it started when this function is left by an exception (one of a handler too) and when
    this process dies. Raises InsufficientMemoryError when memory runs short, BuildFailedError when the program cannot
    be started.
    """
    limits = limits or MemoryLimits()
    launched = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), str(NICENESS), "--", *command]
    with log.open("wb") as log_stream:
        try:
            process = subprocess.Popen(  # noqa: S603  # fixed launcher, no shell
                launched,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=tuple(locks),
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            raise BuildFailedError(f"the builder cannot be started: {error.strerror}") from error
        try:
            return _watch(process, stdin, log_stream, (on_line, on_log_line), limits)
        finally:
            _end(process)


def log_tail(log: Path) -> str:
    """The end of what the builder said, as lines of text; empty when it said nothing."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - TAIL_BYTES))
            return stream.read(TAIL_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _watch(
    process: subprocess.Popen[bytes],
    stdin: bytes,
    log_stream: IO[bytes],
    handlers: tuple[LineHandler, LineHandler | None],
    limits: MemoryLimits,
) -> int:
    on_line, on_log_line = handlers
    lines: _Lines = queue.Queue()
    readers = [
        threading.Thread(target=_read_lines, args=(process.stdout, lines, on_line), daemon=True),
        threading.Thread(target=_keep, args=(process.stderr, log_stream, lines, on_log_line), daemon=True),
        threading.Thread(target=_write, args=(process.stdin, stdin), daemon=True),
    ]
    for reader in readers:
        reader.start()
    next_check, open_streams = time.monotonic(), 2
    while open_streams:
        if time.monotonic() >= next_check:
            _check_memory(process.pid, limits)
            next_check = time.monotonic() + POLL_SECONDS
        try:
            item = lines.get(timeout=POLL_SECONDS)
        except queue.Empty:
            continue
        if item is None:
            open_streams -= 1
        else:
            handler, line = item
            handler(line)
    return process.wait()


def _read_lines(stream: IO[bytes] | None, lines: _Lines, handler: LineHandler) -> None:
    assert stream is not None  # noqa: S101  # a pipe was asked for
    while line := stream.readline(MAX_LINE_BYTES):
        lines.put((handler, _text(line)))
    lines.put(None)


def _keep(stream: IO[bytes] | None, log: IO[bytes], lines: _Lines, handler: LineHandler | None) -> None:
    assert stream is not None  # noqa: S101
    left_bytes = MAX_LOG_BYTES
    while line := stream.readline(MAX_LINE_BYTES):
        if left_bytes > 0:
            try:
                log.write(line[:left_bytes])
                log.flush()
            except OSError:  # a full disk fails the build where it matters
                left_bytes = 0
            left_bytes -= len(line)
        if handler is not None:
            lines.put((handler, _text(line)))
    lines.put(None)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r\n")


def _write(stream: IO[bytes] | None, content: bytes) -> None:
    assert stream is not None  # noqa: S101
    try:
        stream.write(content)
        stream.close()
    except OSError:  # it ended without reading: its status says why
        pass


def _check_memory(pid: int, limits: MemoryLimits) -> None:
    available_bytes = available_memory_bytes()
    if available_bytes is not None and available_bytes < limits.floor_bytes:
        raise InsufficientMemoryError(
            f"the build was ended: {available_bytes >> 20} MiB of memory were left, {limits.floor_bytes >> 20} MiB "
            "must stay for the rest of this machine — stop what else runs, or build on a machine with more"
        )
    if limits.ceiling_bytes is not None:
        held_bytes = sum(_resident_bytes(member) for member in _with_descendants(pid))
        if held_bytes > limits.ceiling_bytes:
            raise InsufficientMemoryError(
                f"the build was ended: it holds {held_bytes >> 20} MiB of memory, {limits.ceiling_bytes >> 20} MiB are "
                "allowed — raise the limit, or build with a smaller profile"
            )


def _with_descendants(pid: int) -> list[int]:
    members, position = [pid], 0
    while position < len(members):
        try:
            children = Path(f"/proc/{members[position]}/task/{members[position]}/children").read_text()
            members += [int(child) for child in children.split()]
        except (OSError, ValueError):
            pass
        position += 1
    return members


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing of the build runs on: the builder leads a session of its own, and all of that is killed."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
