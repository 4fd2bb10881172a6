"""SafetensorsHeader: the tensor table of a safetensors file, checked whole before any tensor is touched.

Whatever is inconsistent is a CheckpointError that names the file and the tensor. Without numpy: a table is all that a
digest needs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeGuard

from edgellm.errors import CheckpointError

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
MAX_DIMENSIONS = 8
LENGTH_BYTES = 8
VALUE_BYTES: Mapping[str, int] = {"F32": 4, "F16": 2, "BF16": 2}
# Known to the format and not readable here; their sizes still take part in the checks.
OTHER_VALUE_BYTES: Mapping[str, int] = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "I16": 2,
    "U16": 2,
    "I32": 4,
    "U32": 4,
    "F64": 8,
    "I64": 8,
    "U64": 8,
}
_LFS_POINTER = b"version https://git-lfs"


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """``offset_bytes`` counts from the file's start. ``shape`` has the contiguous dimension last."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset_bytes: int
    size_bytes: int


class SafetensorsHeader:
    """``tensors`` in the order of the header; ``header_bytes`` counts from the file's start to the first tensor."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.path = path
        self.size_bytes = stream.seek(0, 2)
        stream.seek(0)
        start = stream.read(max(LENGTH_BYTES, len(_LFS_POINTER)))
        if self.size_bytes < LENGTH_BYTES:
            self._fail(f"{self.size_bytes} bytes are too few for a safetensors file")
        if start[: len(_LFS_POINTER)] == _LFS_POINTER:
            self._fail("a Git LFS pointer, not the weights themselves: fetch them with `git lfs pull`")
        header_length = int.from_bytes(start[:LENGTH_BYTES], "little")
        if header_length > MAX_HEADER_BYTES:
            self._fail(f"its header claims {header_length} bytes, over the format's {MAX_HEADER_BYTES}")
        self.header_bytes = LENGTH_BYTES + header_length
        if self.header_bytes > self.size_bytes:
            self._fail("the file ends inside its header: it is truncated or damaged")
        stream.seek(LENGTH_BYTES)
        self.tensors: Mapping[str, StoredTensor] = self._check_layout(self._read_header(stream.read(header_length)))

    def fail_tensor(self, name: str, reason: str) -> NoReturn:
        raise CheckpointError(f"{self.path}: tensor {name[:200]}: {reason}")

    def _read_header(self, content: bytes) -> dict[str, Any]:
        try:
            header = json.loads(content.decode("utf-8"), object_pairs_hook=_unique_names)
        except (ValueError, RecursionError) as error:
            self._fail(f"its header is not JSON ({error})")
        if not isinstance(header, dict):
            self._fail("its header is not a JSON object")
        header.pop("__metadata__", None)
        return header

    def _check_layout(self, header: dict[str, Any]) -> dict[str, StoredTensor]:
        tensors = {name: self._tensor(name, entry) for name, entry in header.items()}
        end_bytes = self.header_bytes
        for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.offset_bytes, tensor.size_bytes)):
            if tensor.offset_bytes < end_bytes:
                self.fail_tensor(tensor.name, "its data overlaps another tensor's")
            if tensor.offset_bytes > end_bytes:
                self.fail_tensor(tensor.name, "there is a gap before its data")
            end_bytes += tensor.size_bytes
        if end_bytes != self.size_bytes:
            self._fail(f"its tensors end at byte {end_bytes}, the file at {self.size_bytes}")
        return tensors

    def _tensor(self, name: str, entry: Any) -> StoredTensor:
        if not isinstance(entry, dict):
            self.fail_tensor(name, "its entry is not an object")
        dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        width_bytes = {**VALUE_BYTES, **OTHER_VALUE_BYTES}.get(dtype) if isinstance(dtype, str) else None
        if not isinstance(dtype, str) or width_bytes is None:
            self.fail_tensor(name, f"its type {str(dtype)[:40]!r} is unknown")
        if not _counts(shape) or len(shape) > MAX_DIMENSIONS:
            self.fail_tensor(name, "its shape is not a list of sizes")
        if not _counts(offsets) or len(offsets) != 2:
            self.fail_tensor(name, "its data_offsets are not two numbers")
        begin, end = offsets
        if end > self.size_bytes - self.header_bytes:
            self.fail_tensor(
                name,
                f"its data ends at byte {self.header_bytes + end}, the file at {self.size_bytes}: "
                "the file is truncated or damaged",
            )
        if end - begin != math.prod(shape) * width_bytes:
            self.fail_tensor(name, f"{end - begin} bytes of data do not fit its shape {shape} of {dtype}")
        return StoredTensor(name, dtype, tuple(shape), self.header_bytes + begin, end - begin)

    def _fail(self, reason: str) -> NoReturn:
        raise CheckpointError(f"{self.path}: {reason}")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a name occurs twice")
    return entries


def _counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 62 for item in value)
