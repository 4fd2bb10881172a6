"""Replaces files that are closed to other users: whole or not at all, and never open for a moment."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

CLOSED_MODE = 0o600


def replace_file(path: Path, data: bytes, mode: int = CLOSED_MODE) -> None:
    """Write ``data`` under ``path`` durably. Raises OSError; the file is as before then.

    The owner stays: what root renews for a daemon's user must stay readable for it.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, CLOSED_MODE)
    try:
        with open(descriptor, "wb") as stream:
            if path.exists():
                before = path.stat()
                if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(descriptor, before.st_uid, before.st_gid)
            os.fchmod(descriptor, mode)
            stream.write(data)
            stream.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
