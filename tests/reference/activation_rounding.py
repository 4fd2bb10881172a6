"""How block-quantised kernels round what they multiply with, so that a reference can do the same and be compared
closely. Without it, quantised weights can only be compared loosely: rounding activations to 8 bits moves the logits
of a small random model far more than any error worth finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Rows times a weight matrix [outputs, inputs].
Product = Callable[[Array, Array], Array]

BLOCK_VALUES = 32


def exact_product(x: Array, matrix: Array) -> Array:
    return x @ matrix.T


def half_product(x: Array, matrix: Array) -> Array:
    """For half-precision matrices: activations are rounded to half precision too."""
    return x.astype(np.float16).astype(x.dtype) @ matrix.T


def _eight_bit_blocks(x: Array) -> tuple[Array, Array]:
    """Blocks of 32 as 8-bit integers and the scale of each: the largest magnitude becomes 127."""
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], -1, BLOCK_VALUES)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
    return np.rint(blocks * inverse), largest / np.float32(127)


def _to_half_and_back(x: Array) -> Array:
    return x.astype(np.float16).astype(np.float32)


def block_product(x: Array, matrix: Array) -> Array:
    """For matrices in blocks with a scale: activations become 8-bit integers with a half-precision scale."""
    integers, scales = _eight_bit_blocks(x)
    rounded = (integers * _to_half_and_back(scales)).reshape(x.shape).astype(x.dtype)
    return rounded @ matrix.T


def block_product_with_minimum(x: Array, matrix: Array) -> Array:
    """For matrices in blocks with a scale and a minimum (Q4_1, Q5_1): the minimum is multiplied with the sum of the
    block's activations, which is kept in half precision."""
    integers, scales = _eight_bit_blocks(x)
    rounded = (integers * _to_half_and_back(scales)).reshape(x.shape).astype(x.dtype)
    sums = _to_half_and_back(integers.sum(axis=-1) * scales[..., 0]).astype(x.dtype)
    # The smallest weight of a block is its minimum: the quantiser gives it the integer 0.
    minimums = matrix.reshape(len(matrix), -1, BLOCK_VALUES).min(axis=-1)
    above = matrix - np.repeat(minimums, BLOCK_VALUES, axis=1)
    return rounded @ above.T + sums @ minimums.T


def own_block_product(x: Array, matrix: Array) -> Array:
    """Our own kernels beside weights of 4 bits: 8-bit integers as above, whose scale stays in single precision."""
    integers, scales = _eight_bit_blocks(x)
    return (integers.astype(x.dtype) * scales.astype(x.dtype)).reshape(x.shape) @ matrix.T


PRODUCT_BY_MATRIX_TYPE: Mapping[str, Product] = {
    "F32": exact_product,
    "F16": half_product,
    "Q8_0": block_product,
    "Q4_0": block_product,
    "Q5_0": block_product,
    "Q4_1": block_product_with_minimum,
    "Q5_1": block_product_with_minimum,
}
