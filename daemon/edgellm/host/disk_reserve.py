"""DiskReserve: a few megabytes that are given up when the disk is full, so that an upgrade can still be undone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

NAME = "reserve"
RESERVE_BYTES = 4_000_000  # notes of the way, copies of configuration and units


class DiskReserve:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / NAME

    def give_up_where_full(self) -> None:
        """Raises OSError."""
        if shutil.disk_usage(self._folder).free < RESERVE_BYTES:
            self._file.unlink(missing_ok=True)

    def keep(self) -> None:
        """As far as there is room. Nothing fails for want of it."""
        try:
            if self._file.exists() or shutil.disk_usage(self._folder).free < 2 * RESERVE_BYTES:
                return
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        except OSError:
            self._file.unlink(missing_ok=True)
        finally:
            os.close(descriptor)
