"""Eviction: which bundles go when they are too many: those used least recently, never a pinned or a loaded one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from edgellm.engines.file_lock import try_exclusive_lock
from edgellm.engines.lease import lock_for_removal
from edgellm.engines.manifest import MANIFEST_FILE
from edgellm.engines.store_entries import Entry, entries_of, last_used_ns, lock_path, pin_path
from edgellm.engines.store_staging import remove_folder
from edgellm.errors import BundleDamagedError

PINNED = "pinned"
LOADED = "loaded by a running process"
BUSY = "being built or removed by another process"


@dataclass(slots=True)
class Eviction:
    """What was removed, and what stayed although it was meant to go, with the reason by name.

    ``removed_checkpoints``, in bytes by digest, came with engines that are gone; ``freed_bytes`` is of engines alone.
    """

    removed: list[Entry] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    removed_checkpoints: dict[str, int] = field(default_factory=dict)

    @property
    def freed_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.removed)


def evict(root: Path, wanted_bytes: int, *, keep: str = "") -> Eviction:
    """Remove the least recently used bundles of ``root`` until ``wanted_bytes`` are freed or none is left to remove.

    ``keep`` is a short key that stays whatever happens. Raises OSError.
    """
    result = Eviction()
    for entry in sorted(entries_of(root, read_only=False), key=lambda entry: (entry.last_used_ns, entry.name)):
        if result.freed_bytes >= wanted_bytes:
            break
        if entry.short_key != keep:
            remove_into(result, entry)
    return result


def remove_all(entries: Iterable[Entry], *, pinned_too: bool = False) -> Eviction:
    """Remove ``entries``; loaded ones stay. Raises OSError."""
    result = Eviction()
    for entry in entries:
        remove_into(result, entry, pinned_too=pinned_too)
    return result


def remove_into(result: Eviction, entry: Entry, *, pinned_too: bool = False) -> None:
    if entry.pinned and not pinned_too:
        result.kept[entry.name] = PINNED
        return
    path = lock_path(entry.root, entry.short_key)
    build_lock = try_exclusive_lock(path)
    if build_lock is None:
        result.kept[entry.name] = BUSY
        return
    try:
        with suppress(FileNotFoundError):  # another process was faster
            lock: int | None = None
            with suppress(BundleDamagedError):
                lock = lock_for_removal(entry.directory)
                if lock is None:
                    result.kept[entry.name] = LOADED
                    return
            try:
                remove_folder(entry.root, entry.name, entry.short_key)
            finally:
                if lock is not None:
                    os.close(lock)
            result.removed.append(entry)
            with suppress(OSError):
                pin_path(entry.root, entry.short_key).unlink()
                path.unlink()
    finally:
        os.close(build_lock)


def is_loaded(entry: Entry) -> bool:
    """Whether a lease holds the bundle now; read-only roots are not locked, so of theirs nobody knows."""
    if entry.read_only:
        return False
    try:
        lock = lock_for_removal(entry.directory)
    except (OSError, BundleDamagedError):
        return False
    if lock is None:
        return True
    os.close(lock)
    return False


def mark_used(root: Path, name: str) -> None:
    """Make the bundle the most recently used one, whatever the clock says: after every other, if not now.

    A clock that was set back must not turn what was just used into what goes first.
    """
    stamp_ns = max(time.time_ns(), last_used_ns(root, apart_from=name) + 1)
    with suppress(OSError):  # a cache that cannot be written is not evicted from either
        os.utime(root / name / MANIFEST_FILE, ns=(stamp_ns, stamp_ns))
