"""Digests: a whole file by every byte, a weights file by its header, its size and bounded samples."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

SAMPLE_BYTES = 64
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


def weights_digest(path: Path, header_bytes: int, spans: Iterable[tuple[int, int]]) -> str:
    """SHA-256 over header, file size, and begin, middle and end of each ``(offset, size)`` span.

    Cheap on any size of file, and it changes when a tensor was retrained, requantised, moved or renamed.
    """
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        digest.update(os.fstat(descriptor).st_size.to_bytes(8, "little"))
        position = 0
        while position < header_bytes:
            block = os.pread(descriptor, min(READ_BYTES, header_bytes - position), position)
            if not block:
                break
            digest.update(block)
            position += len(block)
        for offset, size in spans:
            last = offset + max(0, size - SAMPLE_BYTES)
            for start in (offset, (offset + last) // 2, last):
                digest.update(os.pread(descriptor, min(SAMPLE_BYTES, size), start))
    finally:
        os.close(descriptor)
    return digest.hexdigest()
