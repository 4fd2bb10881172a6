"""Files of this machine that requests may name, apart from those of others: below one folder, wherever links lead."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from edgellm.errors import MediaAccessError, RequestError
from edgellm.media.media_file import MediaFile

_FILE_URL: Final = re.compile(r"file://(?:localhost)?(?P<path>/[^?#]*)", re.IGNORECASE)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def is_remote(text: str) -> bool:
    """Whether another host has it."""
    return text[:8].lower().startswith(("http:", "https:"))


def local_path(text: str) -> str | None:
    """The path that a file URL or a plain path means; None for another kind of URL."""
    url = _FILE_URL.fullmatch(text)
    if url is not None:
        return unquote(url["path"])
    return None if _SCHEME.match(text) else text


def open_local_file(path: str, root: Path | None, field: str) -> MediaFile:
    """The file itself, opened to read. A relative path begins at ``root``; without a root there are no local files.

    Raises MediaAccessError for whatever lies outside, before anything is said of whether it exists.
    """
    refused = MediaAccessError(
        f"{field}: files of this machine may be named below media.local_root alone.", param=field
    )
    if root is None or "\0" in path:
        raise refused
    inside = os.path.realpath(root)
    meant = os.path.realpath(os.path.join(inside, path))
    if not _is_below(meant, inside):
        raise refused
    try:
        descriptor = os.open(meant, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        raise RequestError(f"{field} names no file that can be read.", param=field) from None
    file = MediaFile(descriptor)
    # What was opened, not what was there a moment ago.
    if not _is_below(os.readlink(f"/proc/self/fd/{descriptor}"), inside):
        file.close()
        raise refused
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise RequestError(f"{field} names no file that can be read.", param=field)
    return file


def _is_below(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)
