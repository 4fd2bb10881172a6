"""Digests of single files, by every byte."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from edgellm.config.regular_file import open_regular

READ_BYTES = 1 << 20


def whole_file_sha256(path: Path, on_bytes: Callable[[int], None] = lambda _done: None) -> str:
    """Hexadecimal SHA-256 of the file; ``on_bytes`` is told how many bytes were read so far."""
    digest = hashlib.sha256()
    done_bytes = 0
    with open_regular(path) as stream:
        while block := stream.read(READ_BYTES):
            digest.update(block)
            done_bytes += len(block)
            on_bytes(done_bytes)
    return digest.hexdigest()
