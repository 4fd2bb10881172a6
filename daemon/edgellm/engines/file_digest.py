"""Digests of single files, by every byte."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from edgellm.config.regular_file import open_regular

READ_BYTES = 1 << 20


def whole_file_sha256(path: Path, on_bytes: Callable[[int], None] = lambda _done: None) -> str:
    """Hexadecimal SHA-256 of the file; ``on_bytes`` is told how many bytes were read so far."""
    with open_regular(path) as stream:
        return _all_of(stream, hashlib.sha256(), on_bytes)


def git_blob_sha1(path: Path) -> str:
    """What git calls the file: hexadecimal SHA-1 of its size and content."""
    with open_regular(path) as stream:
        head = f"blob {os.fstat(stream.fileno()).st_size}\0".encode()
        return _all_of(stream, hashlib.sha1(head, usedforsecurity=False))


def _all_of(stream: BinaryIO, digest: hashlib._Hash, on_bytes: Callable[[int], None] = lambda _done: None) -> str:
    done_bytes = 0
    while block := stream.read(READ_BYTES):
        digest.update(block)
        done_bytes += len(block)
        on_bytes(done_bytes)
    return digest.hexdigest()
