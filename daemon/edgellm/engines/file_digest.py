"""Digests of single files, by every byte."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

READ_BYTES = 1 << 20


def whole_file_sha256(path: Path, on_bytes: Callable[[int], None] = lambda _done: None) -> str:
    """Hexadecimal SHA-256 of the file; ``on_bytes`` is told how many bytes were read so far."""
    digest = hashlib.sha256()
    done_bytes = 0
    with path.open("rb") as stream:
        while block := stream.read(READ_BYTES):
            digest.update(block)
            done_bytes += len(block)
            on_bytes(done_bytes)
    return digest.hexdigest()
