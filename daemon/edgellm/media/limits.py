"""Limits of media in requests: how large a file may be, and what may come out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MEBIBYTE_BYTES: Final = 2**20

IMAGE_BYTES_MAX: Final = 32 * MEBIBYTE_BYTES
IMAGE_PIXELS_MAX: Final = 64_000_000
IMAGE_SIDE_PIXELS_MAX: Final = 65_535  # of JPEG, which allows no more


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Of one image; pixels are counted before any of them is decoded."""

    bytes_max: int = IMAGE_BYTES_MAX
    pixels_max: int = IMAGE_PIXELS_MAX
    side_pixels_max: int = IMAGE_SIDE_PIXELS_MAX


IMAGE_LIMITS: Final = ImageLimits()
