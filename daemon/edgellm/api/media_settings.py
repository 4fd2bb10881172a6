"""MediaSettings: where media of requests may come from, and how much of them there may be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MediaSettings:
    """``local_root`` None and no ``remote_hosts``: media come in the request alone."""

    local_root: Path | None = None
    remote_hosts: tuple[str, ...] = ()
    remote_seconds_max: float = 20.0
    request_bytes_max: int = 288 * 2**20
    bytes_max: int = 512 * 2**20  # of all requests together


def base64_bytes(size_bytes: int) -> int:
    """What so many bytes are as base64, in a string whose slashes are written out."""
    return size_bytes * 4 // 3 + size_bytes // 24
