"""Refuses what does not fit on a disk before anything of it is written, with both numbers."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from edgellm.errors import EdgeLLMError, HostSpaceError, UpgradeError

MEGABYTE_BYTES = 1_000_000
ANOTHER_FOLDER = "make room, or name another folder"
FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Need:
    """``place`` may be still to be made."""

    place: Path
    size_bytes: int
    what: str


def require_room(place: Path, needed_bytes: int, what: str, remedy: str = ANOTHER_FOLDER) -> None:
    """``place`` may be still to be made. Raises HostSpaceError."""
    free_bytes = shutil.disk_usage(_there(place)).free
    if free_bytes < needed_bytes:
        needed, free = (size_bytes / MEGABYTE_BYTES for size_bytes in (needed_bytes, free_bytes))
        raise HostSpaceError(f"{place}: {what} needs up to {needed:.1f} MB, and {free:.1f} MB are free — {remedy}")


def require_room_for_all(needs: Iterable[Need], spare_bytes: int, remedy: str) -> None:
    """Those of one file system count together; ``spare_bytes`` stay free on each. Raises HostSpaceError."""
    by_disk: dict[int, list[Need]] = {}
    for need in needs:
        by_disk.setdefault(_there(need.place).stat().st_dev, []).append(need)
    for shared in by_disk.values():
        what = " with ".join(dict.fromkeys(need.what for need in shared))
        largest = max(shared, key=lambda need: need.size_bytes)
        require_room(largest.place, sum(need.size_bytes for need in shared) + spare_bytes, what, remedy)


def write_failure(place: Path, error: OSError) -> EdgeLLMError:
    """What to raise for it: a full disk is named with what is free. ``place`` counts where the error has no name."""
    named = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else place
    if error.errno not in FULL:
        return UpgradeError(f"{named}: {error.strerror or error}")
    free = shutil.disk_usage(_there(named)).free / MEGABYTE_BYTES
    return HostSpaceError(f"{named}: the disk is full, {free:.1f} MB are free — make room there")


def _there(place: Path) -> Path:
    return next(folder for folder in (place, *place.absolute().parents) if folder.exists())
