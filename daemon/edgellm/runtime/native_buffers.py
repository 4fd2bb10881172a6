"""Buffers of the runtime contract from media that were decoded.

Loaders of images and sounds take files, and what clients sent must never reach them: they get files that are made
here, of samples as they are, which any loader reads alike.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from edgellm.media.audio import SAMPLE_RATE_HZ
from edgellm.media.media_input import DecodedMedia
from edgellm.runtime.contract import RuntimeModule

_BMP_HEADER: Final = struct.Struct("<2sIHHIIiiHHIIiiII")
_BMP_INFO_BYTES: Final = 40
_BMP_BITS: Final = 24
_WAV_HEADER: Final = struct.Struct("<4sI4s4sIHHIIHH4sI")
_WAV_PCM: Final = 1
_SAMPLE_MAX: Final = 32767.0


def native_buffers(module: RuntimeModule, media: Sequence[DecodedMedia]) -> tuple[list[Any], list[Any]]:
    """Give those of images and videos, in one list, and those of sounds, each in the order of the parts."""
    seen = [_image_buffer(module, each) for each in media if each.kind != "audio"]
    heard = [module.load_audio_buffer_from_bytes(wav_file(each.samples)) for each in media if each.kind == "audio"]
    return seen, heard


def _image_buffer(module: RuntimeModule, media: DecodedMedia) -> Any:
    if media.kind == "video":
        return module.load_video_from_array(media.samples, media.fps, list(media.timestamps_seconds))
    buffer = _still_buffer(module, media.samples)
    buffer.do_resize = media.resizes
    return buffer


def _still_buffer(module: RuntimeModule, pixels: npt.NDArray[np.uint8]) -> Any:
    from_array = getattr(module, "load_image_from_array", None)  # our module takes pixels as they are
    return module.load_image_from_bytes(bmp_file(pixels)) if from_array is None else from_array(pixels)


def bmp_file(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Pixels of shape (height, width, 3): rows from the bottom up, blue first, each row a multiple of four bytes."""
    height, width, channels = pixels.shape
    row_bytes = -(-width * channels // 4) * 4
    rows = np.zeros((height, row_bytes), np.uint8)
    rows[:, : width * channels] = pixels[::-1, :, ::-1].reshape(height, width * channels)
    header = _BMP_HEADER.pack(
        *(b"BM", _BMP_HEADER.size + rows.nbytes, 0, 0, _BMP_HEADER.size),
        *(_BMP_INFO_BYTES, width, height, 1, _BMP_BITS, 0, rows.nbytes, 0, 0, 0, 0),
    )
    return header + rows.tobytes()


def wav_file(samples: npt.NDArray[np.float32]) -> bytes:
    """Mono samples from -1 to 1 at SAMPLE_RATE_HZ, in 16 bits."""
    data = (np.clip(samples, -1.0, 1.0) * _SAMPLE_MAX).round().astype("<i2").tobytes()
    header = _WAV_HEADER.pack(
        *(b"RIFF", _WAV_HEADER.size - 8 + len(data), b"WAVE", b"fmt ", 16, _WAV_PCM, 1, SAMPLE_RATE_HZ),
        *(2 * SAMPLE_RATE_HZ, 2, 16, b"data", len(data)),
    )
    return header + data
