"""SafetensorsFile: a memory-mapped safetensors file, its values read after its header was checked.

Values come out as float32, a bounded number of rows at a time, also from bfloat16, which numpy does not have.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgellm.config.regular_file import open_regular
from edgellm.engines.safetensors_header import VALUE_BYTES, SafetensorsHeader, StoredTensor

FloatArray = NDArray[np.float32]


class SafetensorsFile:
    """Open with ``SafetensorsFile(path)``; the mapping lives as long as the object or an array made from it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open_regular(path) as stream:
            self._header = SafetensorsHeader(path, stream)
            self._mapping = mmap.mmap(stream.fileno(), self._header.size_bytes, access=mmap.ACCESS_READ)

    @property
    def header_bytes(self) -> int:
        return self._header.header_bytes

    @property
    def tensors(self) -> Mapping[str, StoredTensor]:
        return self._header.tensors

    def rows(self, tensor: StoredTensor, rows_per_block: int) -> Iterator[FloatArray]:
        """Blocks of at most ``rows_per_block`` rows, in order. A vector is one row."""
        width_bytes = VALUE_BYTES.get(tensor.dtype)
        if width_bytes is None:
            self._header.fail_tensor(tensor.name, f"type {tensor.dtype} cannot be read ({', '.join(VALUE_BYTES)} can)")
        row_values = tensor.shape[-1] if tensor.shape else 1
        row_count = math.prod(tensor.shape[:-1])
        for first in range(0, row_count, rows_per_block):
            count = min(rows_per_block, row_count - first)
            offset = tensor.offset_bytes + first * row_values * width_bytes
            block = self._values(tensor.dtype, offset, count * row_values).reshape(count, row_values)
            if not np.isfinite(block).all():
                self._header.fail_tensor(tensor.name, "it holds values that are not finite")
            yield block

    def _values(self, dtype: str, offset_bytes: int, count: int) -> FloatArray:
        if dtype == "BF16":
            # A bfloat16 is the upper half of a float32.
            halves = np.frombuffer(self._mapping, dtype="<u2", count=count, offset=offset_bytes)
            return (halves.astype(np.uint32) << 16).view(np.float32)
        kind = "<f4" if dtype == "F32" else "<f2"
        return np.frombuffer(self._mapping, dtype=kind, count=count, offset=offset_bytes).astype(np.float32)
