"""Refuses what does not fit on a disk before anything of it is written, with both numbers."""

from __future__ import annotations

import shutil
from pathlib import Path

from edgellm.errors import HostSpaceError

MEGABYTE_BYTES = 1_000_000
ANOTHER_FOLDER = "make room, or name another folder"


def require_room(place: Path, needed_bytes: int, what: str, remedy: str = ANOTHER_FOLDER) -> None:
    """``place`` may be still to be made. Raises HostSpaceError."""
    there = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
    free_bytes = shutil.disk_usage(there).free
    if free_bytes < needed_bytes:
        needed, free = (size_bytes / MEGABYTE_BYTES for size_bytes in (needed_bytes, free_bytes))
        raise HostSpaceError(f"{place}: {what} needs up to {needed:.1f} MB, and {free:.1f} MB are free — {remedy}")
