"""RecordFile: a file of JSON lines, written by a thread of its own, rotated by size, closed to other users.

Whatever becomes of the file (a full disk, a read-only one, a folder that is gone), nobody waits for it: lines that
cannot be written are counted as lost, and writing goes on by itself once it can.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import queue
import stat
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgellm.errors import ConfigError

MODE = 0o600
LINES_WAITING_MAX = 4_096
LINE_BYTES_MAX = 2**19  # beyond it a line goes without the texts it may have
TEXT_FIELDS = ("prompts", "answers")
TEXT_OMITTED_FIELD = "text_omitted"

_log = logging.getLogger(__name__)

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecordFileSettings:
    """``max_bytes`` of one file; ``files_kept`` older ones stay beside it, as FILE.1 (the newest) and so on."""

    path: Path
    max_bytes: int = 64 * 2**20
    files_kept: int = 4


class RecordFile:
    """``write`` returns at once and never raises. ``count(result, lines)`` tells of them, on any thread."""

    def __init__(self, settings: RecordFileSettings, count: Callable[[str, int], None]) -> None:
        self._settings = settings
        self._count = count
        self._waiting: queue.Queue[Line | _Order] = queue.Queue(LINES_WAITING_MAX)
        self._descriptor = -1
        self._size_bytes = 0
        self._lost_lines = 0  # since the file could last be written
        self._thread = threading.Thread(target=self._run, name="records", daemon=True)
        self._thread.start()

    def write(self, line: Line) -> None:
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self._count("lost", 1)

    def reopen(self) -> None:
        """Open the path anew before the next line: somebody moved the file away."""
        self._order(_Order(self._close_file))

    def finish(self) -> None:
        """Write what waits, and nothing after it. Returns at once."""
        self._order(_Order(self._close_file, is_last=True))

    def close(self, limit_seconds: float) -> None:
        """``finish``, and wait; a file system that takes longer than ``limit_seconds`` loses what waits."""
        self.finish()
        self._thread.join(limit_seconds)

    def _order(self, order: _Order) -> None:
        try:
            self._waiting.put_nowait(order)
        except queue.Full:
            _log.warning("records: %s is not taking lines; it is not opened anew", self._settings.path)

    # On the thread

    def _run(self) -> None:
        is_last = False
        while not is_last:
            taken = self._waiting.get()
            if isinstance(taken, _Order):
                taken.act()
                is_last = taken.is_last
                continue
            try:
                self._append(_line_bytes(taken))
            except OSError as error:
                self._lose(error)
            else:
                self._count("written", 1)
                self._recovered()

    def _append(self, line: bytes) -> None:
        """The whole line or nothing of it. Raises OSError."""
        self._open()
        if self._size_bytes and self._size_bytes + len(line) > self._settings.max_bytes:
            self._rotate()
            self._open()
        try:
            self._write_whole(line)
        except OSError:
            self._close_file()  # what it holds now is looked up when it is opened again
            raise
        self._size_bytes += len(line)

    def _write_whole(self, line: bytes) -> None:
        if os.write(self._descriptor, line) < len(line):
            os.truncate(self._descriptor, self._size_bytes)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _open(self) -> None:
        if self._descriptor >= 0:
            return
        self._descriptor, self._size_bytes = _open_private(self._settings.path)

    def _rotate(self) -> None:
        self._close_file()
        path, kept = self._settings.path, self._settings.files_kept
        names = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, kept + 1))]
        names[-1].unlink(missing_ok=True)
        for number in range(kept, 0, -1):
            if names[number - 1].exists():
                names[number - 1].rename(names[number])

    def _close_file(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _lose(self, error: OSError) -> None:
        self._count("lost", 1)
        self._lost_lines += 1
        if self._lost_lines == 1:
            _log.error(
                "records: %s cannot be written (%s): requests are served on, their records are lost until it can",
                self._settings.path,
                error.strerror,
            )

    def _recovered(self) -> None:
        if self._lost_lines:
            _log.warning("records: %s is written again; %d were lost", self._settings.path, self._lost_lines)
            self._lost_lines = 0


@dataclass(frozen=True, slots=True)
class _Order:
    """Something to do between two lines."""

    act: Callable[[], None]
    is_last: bool = False


def check_record_file(path: Path) -> None:
    """Raises ConfigError for a file that cannot be written. Leaves an empty one where there was none."""
    try:
        descriptor, _ = _open_private(path)
    except OSError as error:
        raise ConfigError(
            f"records.file {path} cannot be written ({error.strerror}) — set it, or --records, to a file in a folder "
            "that the daemon may write"
        ) from None
    os.close(descriptor)


def _open_private(path: Path) -> tuple[int, int]:
    """The descriptor, and the size in bytes. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not hold it up
    descriptor = os.open(path, flags, MODE)
    try:
        return descriptor, _make_private(descriptor)
    except OSError:
        os.close(descriptor)
        raise


def _make_private(descriptor: int) -> int:
    """Close the file to other users; its size in bytes. Raises OSError."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no plain file")
    if stat.S_IMODE(status.st_mode) != MODE:
        os.fchmod(descriptor, MODE)
    return status.st_size


def _line_bytes(line: Line) -> bytes:
    data = _json(line)
    if len(data) <= LINE_BYTES_MAX:
        return data
    shorter = {name: value for name, value in line.items() if name not in TEXT_FIELDS}
    return _json({**shorter, TEXT_OMITTED_FIELD: True})


def _json(line: Line) -> bytes:
    return json.dumps(line, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
