"""Files that are there whole or not at all, also after a power cut."""

from __future__ import annotations

import glob
import json
import os
import secrets
from pathlib import Path
from typing import Any

PRIVATE_FOLDER_MODE = 0o700
PRIVATE_FILE_MODE = 0o600
TOKEN_BYTES = 8


def make_private_folder(folder: Path) -> None:
    """Root's own, whatever the umask; one that is there keeps nobody else's rights."""
    folder.mkdir(mode=PRIVATE_FOLDER_MODE, parents=True, exist_ok=True)
    folder.chmod(PRIVATE_FOLDER_MODE)


def write_durably(path: Path, content: bytes, mode: int = PRIVATE_FILE_MODE) -> None:
    """Replace the file: it has the old or the new content, and is open to nobody else for a moment. Raises OSError.

    The owner stays: what root renews for a daemon's user must stay readable for it.
    """
    temporary = _unfinished(path)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE_MODE)
    try:
        with open(descriptor, "wb") as stream:
            if path.exists():
                before = path.stat()
                if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(descriptor, before.st_uid, before.st_gid)
            os.fchmod(descriptor, mode)
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a write that fails names no file
        raise
    sync_folder(path.parent)


def write_json_durably(path: Path, value: Any) -> None:
    write_durably(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def replace_link(path: Path, target: str) -> None:
    """``path`` becomes a symbolic link to ``target``, from one moment to the next. Raises OSError."""
    temporary = _unfinished(path)
    temporary.symlink_to(target)
    try:
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def remove_unfinished(path: Path) -> None:
    """What a kill or power cut left of writing ``path``; for whoever is alone in writing it. Raises OSError."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 2 * TOKEN_BYTES}"):
        left.unlink(missing_ok=True)


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(TOKEN_BYTES)}")


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
