"""How each tensor is stored: the type it gets, and its values in that type."""

from __future__ import annotations

from typing import Any

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import quantize
from numpy.typing import NDArray

from edgellm.engines.gguf_file import TensorType
from edgellm.engines.gguf_model import EMBEDDING, OUTPUT
from edgellm.engines.safetensors_file import FloatArray
from edgellm.errors import UnsupportedModelError

LARGEST_F16 = 65504.0
_TYPES = {
    "f32": TensorType.F32,
    "f16": TensorType.F16,
    "q8_0": TensorType.Q8_0,
    "q4_0": TensorType.Q4_0,
    "q4_1": TensorType.Q4_1,
}
_FOUR_BIT = frozenset({TensorType.Q4_0, TensorType.Q4_1})


def stored_type(name: str, shape: tuple[int, ...], quantisation: str) -> TensorType:
    """The type of tensor ``name`` in a model of that quantisation.

    Norms and biases stay f32. Rows that are no whole number of blocks stay f16. With four bits the two matrices that
    meet the vocabulary keep eight: they carry most of the damage that four bits do.
    """
    if len(shape) < 2:
        return TensorType.F32
    kind = _TYPES[quantisation]
    if kind in _FOUR_BIT and name in (EMBEDDING, OUTPUT):
        kind = TensorType.Q8_0
    return TensorType.F16 if shape[-1] % kind.block_elements else kind


def stored_bytes(kind: TensorType, shape: tuple[int, ...]) -> int:
    values = 1
    for extent in shape:
        values *= extent
    return values // kind.block_elements * kind.block_bytes


def stored_values(name: str, block: FloatArray, kind: TensorType) -> NDArray[Any]:
    """Rows of float32 values in the type ``kind``, ready to be written."""
    if kind is TensorType.F32:
        return np.ascontiguousarray(block, dtype="<f4")
    # Blocks have f16 scales, so the bound holds for them too.
    if np.abs(block).max(initial=0.0) > LARGEST_F16:
        raise UnsupportedModelError(f"tensor {name} holds values that f16 cannot — set quantisation to f32")
    if kind is TensorType.F16:
        return block.astype("<f2")
    # The quantiser divides by scales that may be next to nothing; such blocks come out as zeros.
    with np.errstate(all="ignore"):
        packed: NDArray[Any] = quantize(block, GGMLQuantizationType(int(kind)))
    return packed


def adjacent_pairs(rows: FloatArray, head_count: int) -> FloatArray:
    """Query or key rows of whole heads, from rotary halves (i, i + d/2) to neighbours (2i, 2i + 1)."""
    half = rows.shape[0] // head_count // 2
    return rows.reshape(head_count, 2, half, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)
