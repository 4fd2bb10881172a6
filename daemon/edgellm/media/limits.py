"""Limits of media in requests: how large a file may be, and what may come out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edgellm.config import limits

MEBIBYTE_BYTES: Final = 2**20

IMAGE_BYTES_MAX: Final = 32 * MEBIBYTE_BYTES
AUDIO_BYTES_MAX: Final = 25 * MEBIBYTE_BYTES
VIDEO_BYTES_MAX: Final = 256 * MEBIBYTE_BYTES

IMAGE_PIXELS_MAX: Final = 64_000_000
IMAGE_SIDE_PIXELS_MAX: Final = 65_535  # of JPEG, which allows no more
VIDEO_FRAMES_MAX: Final = 54_000  # half an hour of 30 a second
SAMPLED_FRAMES_MAX: Final = 768
REQUEST_PIXELS_MAX: Final = 256_000_000  # of all images and sampled frames of a request
CHAT_AUDIO_SECONDS_MAX: Final = 3600  # of one sound
MEDIA_PARTS_MAX: Final = 64  # of one request
FILES_MAX: Final = 253  # of one request: the kernel lets no more descriptors travel together

DECODING_SECONDS_MAX: Final = 60.0  # for all media of a request
DECODING_MEMORY_BYTES_MAX: Final = limits.DECODING_MEMORY_MIB_MAX * MEBIBYTE_BYTES  # beside the pixels that come out
DECODING_JOBS_MAX: Final = limits.DECODING_JOBS_MAX  # at a time, of one model's worker

BYTES_MAX: Final[Mapping[str, int]] = {"image": IMAGE_BYTES_MAX, "audio": AUDIO_BYTES_MAX, "video": VIDEO_BYTES_MAX}


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Of one image; pixels are counted before any of them is decoded. Others of its request leave it some of them."""

    bytes_max: int = IMAGE_BYTES_MAX
    pixels_max: int = IMAGE_PIXELS_MAX
    side_pixels_max: int = IMAGE_SIDE_PIXELS_MAX
    request_pixels_left: int = REQUEST_PIXELS_MAX


IMAGE_LIMITS: Final = ImageLimits()
