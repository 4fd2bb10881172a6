"""Writes GGUF files byte by byte, so that tests can make every kind of wrong one."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

U8, U32, I32, F32, BOOL, STRING, ARRAY, U64 = 0, 4, 5, 6, 7, 8, 9, 10


def text(value: str | bytes) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(content)) + content


def entry(key: str | bytes, kind: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + payload


def number(key: str, value: int) -> bytes:
    return entry(key, U32, struct.pack("<I", value))


def string(key: str, value: str | bytes) -> bytes:
    return entry(key, STRING, text(value))


def array(key: str, kind: int, count: int, payload: bytes) -> bytes:
    return entry(key, ARRAY, struct.pack("<IQ", kind, count) + payload)


def tensor(name: str, shape: Sequence[int], kind: int, offset: int) -> bytes:
    extents = struct.pack(f"<{len(shape)}Q", *shape)
    return text(name) + struct.pack("<I", len(shape)) + extents + struct.pack("<IQ", kind, offset)


@dataclass
class GgufBytes:
    """``data_bytes`` zeros follow the header, which is padded to ``alignment``."""

    entries: list[bytes] = field(default_factory=list)
    tensors: list[bytes] = field(default_factory=list)
    data_bytes: int = 0
    alignment: int = 32
    magic: bytes = b"GGUF"
    version: int = 3
    tensor_count: int | None = None
    entry_count: int | None = None

    def build(self) -> bytes:
        counts = struct.pack(
            "<IQQ",
            self.version,
            len(self.tensors) if self.tensor_count is None else self.tensor_count,
            len(self.entries) if self.entry_count is None else self.entry_count,
        )
        header = self.magic + counts + b"".join(self.entries) + b"".join(self.tensors)
        return header + bytes(-len(header) % self.alignment) + bytes(self.data_bytes)
