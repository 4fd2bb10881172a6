"""File locks between processes: flock, on files that may be removed by whoever holds their lock."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive_lock(path: Path, on_wait: Callable[[], None]) -> Iterator[int]:
    """Hold the lock of ``path``, made when it is missing; ``on_wait`` is called before a wait. Gives the descriptor.

    A process that ends, however it ends, gives the lock up, once no child has inherited the descriptor.
    """
    descriptor = _locked(path, on_wait)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def try_exclusive_lock(path: Path) -> int | None:
    """The descriptor of the lock of ``path``, or None when somebody holds it. Close it to give it up."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not _lock_now(descriptor):
            os.close(descriptor)
            return None
        if is_still(path, descriptor):
            return descriptor
        os.close(descriptor)


def lock_open_file(descriptor: int, operation: int) -> bool:
    """Apply a flock operation without waiting; False when somebody else's lock is in the way."""
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_still(path: Path, descriptor: int) -> bool:
    """Whether ``path`` is the file that ``descriptor`` has open: a lock on a removed file protects nothing."""
    try:
        there = path.stat(follow_symlinks=False)
    except OSError:
        return False
    opened = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino)


def _locked(path: Path, on_wait: Callable[[], None]) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not _lock_now(descriptor):
                on_wait()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if is_still(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock_now(descriptor: int) -> bool:
    return lock_open_file(descriptor, fcntl.LOCK_EX)
