"""A GGUF file as the model of a bundle: checked, copied (or cloned where the file system can), never linked."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from edgellm.config.regular_file import open_regular
from edgellm.engines.progress import Progress, ProgressCallback

COPY_BYTES = 32 << 20
# The ioctl that shares a file's extents with another, copy on write (btrfs, xfs, bcachefs).
_FICLONE = 0x40049409
_NOT_HERE = frozenset({errno.EXDEV, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.ENOSYS, errno.EPERM})


def place_file(source: Path, target: Path, on_progress: ProgressCallback) -> None:
    """Make ``target`` an independent file of the same bytes. Raises OSError."""
    with open_regular(source) as reader, target.open("xb") as writer:
        if not _cloned(reader.fileno(), writer.fileno()):
            _copy(reader.fileno(), writer.fileno(), os.fstat(reader.fileno()).st_size, on_progress)


def _cloned(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        raise
    return True


def _copy(source: int, target: int, size_bytes: int, on_progress: ProgressCallback) -> None:
    in_kernel = hasattr(os, "copy_file_range")
    done_bytes = 0
    while done_bytes < size_bytes:
        wanted_bytes = min(COPY_BYTES, size_bytes - done_bytes)
        if in_kernel:
            try:
                copied_bytes = os.copy_file_range(source, target, wanted_bytes, done_bytes, done_bytes)
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                in_kernel = False
                continue
        else:
            copied_bytes = os.pwrite(target, os.pread(source, wanted_bytes, done_bytes), done_bytes)
        if copied_bytes == 0:
            raise OSError(errno.EIO, "the file became shorter while it was copied")
        done_bytes += copied_bytes
        on_progress(Progress("copy", "copying the model", done_bytes, size_bytes))
