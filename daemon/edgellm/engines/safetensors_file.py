"""SafetensorsFile: a memory-mapped safetensors file whose header was checked before any tensor is touched.

Whatever is inconsistent is a CheckpointError that names the file and the tensor. Values come out as float32, a bounded
number of rows at a time, also from bfloat16, which numpy does not have.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

import numpy as np
from numpy.typing import NDArray

from edgellm.errors import CheckpointError

FloatArray = NDArray[np.float32]

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


class SafetensorsFile:
    """Open with ``SafetensorsFile(path)``; the mapping lives as long as the object or an array made from it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as stream:
            self.size_bytes = path.stat().st_size
            if self.size_bytes < LENGTH_BYTES:
                self._fail(f"{self.size_bytes} bytes are too few for a safetensors file")
            self._mapping = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        self.size_bytes = len(self._mapping)
        if self._mapping[: len(_LFS_POINTER)] == _LFS_POINTER:
            self._fail("a Git LFS pointer, not the weights themselves: fetch them with `git lfs pull`")
        header_length = int.from_bytes(self._mapping[:LENGTH_BYTES], "little")
        if header_length > MAX_HEADER_BYTES:
            self._fail(f"its header claims {header_length} bytes, over the format's {MAX_HEADER_BYTES}")
        self.header_bytes = LENGTH_BYTES + header_length
        if self.header_bytes > self.size_bytes:
            self._fail("the file ends inside its header: it is truncated or damaged")
        self.tensors: Mapping[str, StoredTensor] = self._check_layout(self._read_header())

    def rows(self, tensor: StoredTensor, rows_per_block: int) -> Iterator[FloatArray]:
        """Blocks of at most ``rows_per_block`` rows, in order. A vector is one row."""
        width_bytes = VALUE_BYTES.get(tensor.dtype)
        if width_bytes is None:
            self._fail_tensor(tensor.name, f"type {tensor.dtype} cannot be read ({', '.join(VALUE_BYTES)} can)")
        row_values = tensor.shape[-1] if tensor.shape else 1
        row_count = math.prod(tensor.shape[:-1])
        for first in range(0, row_count, rows_per_block):
            count = min(rows_per_block, row_count - first)
            offset = tensor.offset_bytes + first * row_values * width_bytes
            block = self._values(tensor.dtype, offset, count * row_values).reshape(count, row_values)
            if not np.isfinite(block).all():
                self._fail_tensor(tensor.name, "it holds values that are not finite")
            yield block

    def _values(self, dtype: str, offset_bytes: int, count: int) -> FloatArray:
        if dtype == "BF16":
            # A bfloat16 is the upper half of a float32.
            halves = np.frombuffer(self._mapping, dtype="<u2", count=count, offset=offset_bytes)
            return (halves.astype(np.uint32) << 16).view(np.float32)
        kind = "<f4" if dtype == "F32" else "<f2"
        return np.frombuffer(self._mapping, dtype=kind, count=count, offset=offset_bytes).astype(np.float32)

    def _read_header(self) -> dict[str, Any]:
        try:
            header = json.loads(
                self._mapping[LENGTH_BYTES : self.header_bytes].decode("utf-8"), object_pairs_hook=_unique_names
            )
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
                self._fail_tensor(tensor.name, "its data overlaps another tensor's")
            if tensor.offset_bytes > end_bytes:
                self._fail_tensor(tensor.name, "there is a gap before its data")
            end_bytes += tensor.size_bytes
        if end_bytes != self.size_bytes:
            self._fail(f"its tensors end at byte {end_bytes}, the file at {self.size_bytes}")
        return tensors

    def _tensor(self, name: str, entry: Any) -> StoredTensor:
        if not isinstance(entry, dict):
            self._fail_tensor(name, "its entry is not an object")
        dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        width_bytes = {**VALUE_BYTES, **OTHER_VALUE_BYTES}.get(dtype) if isinstance(dtype, str) else None
        if not isinstance(dtype, str) or width_bytes is None:
            self._fail_tensor(name, f"its type {str(dtype)[:40]!r} is unknown")
        if not _counts(shape) or len(shape) > MAX_DIMENSIONS:
            self._fail_tensor(name, "its shape is not a list of sizes")
        if not _counts(offsets) or len(offsets) != 2:
            self._fail_tensor(name, "its data_offsets are not two numbers")
        begin, end = offsets
        if end > self.size_bytes - self.header_bytes:
            self._fail_tensor(
                name,
                f"its data ends at byte {self.header_bytes + end}, the file at {self.size_bytes}: "
                "the file is truncated or damaged",
            )
        if end - begin != math.prod(shape) * width_bytes:
            self._fail_tensor(name, f"{end - begin} bytes of data do not fit its shape {shape} of {dtype}")
        return StoredTensor(name, dtype, tuple(shape), self.header_bytes + begin, end - begin)

    def _fail(self, reason: str) -> NoReturn:
        raise CheckpointError(f"{self.path}: {reason}")

    def _fail_tensor(self, name: str, reason: str) -> NoReturn:
        raise CheckpointError(f"{self.path}: tensor {name[:200]}: {reason}")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a name occurs twice")
    return entries


def _counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 62 for item in value)
