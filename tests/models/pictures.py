"""Pictures for tests, as the files that clients send."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]


def png_of(pixels: Pixels) -> bytes:
    """The file of a picture of shape (height, width, 3): png keeps every pixel."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def noise(height: int, width: int, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
