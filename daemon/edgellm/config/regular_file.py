"""Opens files that people name: regular ones only, and at once.

A pipe would wait for somebody who writes, and opening a device can do something.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


class NotRegularFileError(OSError):
    """A folder, pipe, socket or device is where a file should be; ``strerror`` says so."""


def open_regular(path: Path, *, follow_symlinks: bool = True) -> BinaryIO:
    """The file, to read. Raises OSError, of which NotRegularFileError is one."""
    return os.fdopen(regular_descriptor(path, follow_symlinks=follow_symlinks), "rb")


def regular_descriptor(path: Path, *, follow_symlinks: bool = True) -> int:
    """As ``open_regular``, for whoever closes it."""
    _refuse_other(path, os.stat(path, follow_symlinks=follow_symlinks).st_mode)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | (0 if follow_symlinks else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    try:
        _refuse_other(path, os.fstat(descriptor).st_mode)  # something else may have taken its place
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_other(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise NotRegularFileError(errno.EINVAL, "not a regular file", str(path))
