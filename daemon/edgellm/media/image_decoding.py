"""Images: files of clients become RGB pixels, within limits that are checked before anything is decoded.

The format is told by the first bytes and forced upon Pillow, whose other decoders a client cannot reach. Pillow is
imported when the first image comes: a request of text alone never pays for it.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from mmap import mmap
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from edgellm.errors import RequestError
from edgellm.media.content_types import HEAD_BYTES, IMAGE_FORMATS, image_format_of
from edgellm.media.limits import IMAGE_LIMITS, REQUEST_PIXELS_MAX, ImageLimits

if TYPE_CHECKING:
    from PIL import Image
    from PIL.ImageFile import ImageFile

Pixels = npt.NDArray[np.uint8]

_EXIF_ORIENTATION: Final = 0x0112
_WIDE_MODES: Final = ("I", "I;16", "I;16B", "I;16L", "I;16N")  # grey of 16 bits
_WIDE_TO_BYTE: Final = 1 / 257


def decode_rgb(data: bytes | mmap, limits: ImageLimits = IMAGE_LIMITS, *, place: str = "image") -> Pixels:
    """Pixels of shape (height, width, 3), upright, over white where the image lets something through; of an animation
    the first picture. ``place`` is what errors call it.

    Raises RequestError for what is no image of a format that is taken, is damaged, or is beyond the limits.
    """
    if len(data) > limits.bytes_max:
        raise RequestError(f"{place} has {len(data)} bytes; an image may have {limits.bytes_max}.", param=place)
    name = image_format_of(data[:HEAD_BYTES])
    if name is None:
        raise RequestError(f"{place} must be an image: {IMAGE_FORMATS}.", param=place)
    if name == "webp":  # its decoder takes memory for all pixels before it says how many they are
        _check_size(_webp_size(data, place), limits, place)
    damaged = RequestError(f"{place} cannot be decoded as {name}: it is damaged.", param=place)
    try:
        image = _opened(name, data)
    except Exception:  # decoders raise whatever they stumble over, in words about their insides
        raise damaged from None
    with image:
        _check_size(image.size, limits, place)
        try:
            return np.asarray(_upright(_over_white(image), _orientation(image)))
        except MemoryError:
            raise RequestError(f"{place} takes more memory to decode than there is.", param=place) from None
        except Exception:
            raise damaged from None


def _check_size(size: tuple[int, int], limits: ImageLimits, place: str) -> None:
    width, height = size
    if width * height > limits.pixels_max or max(size) > limits.side_pixels_max:
        raise RequestError(
            f"{place} has {width} x {height} pixels; an image may have {limits.pixels_max} of them, "
            f"and {limits.side_pixels_max} on a side.",
            param=place,
        )
    if width * height > limits.request_pixels_left:
        raise too_many_pixels(width * height, limits.request_pixels_left, place)


def too_many_pixels(pixels: int, pixels_left: int, place: str) -> RequestError:
    """The error of one part too many, whatever the others are."""
    return RequestError(
        f"{place} has {pixels} pixels, and the parts before it leave {pixels_left} of the {REQUEST_PIXELS_MAX} "
        "that the images and video frames of one request may have.",
        param=place,
    )


def _webp_size(data: bytes | mmap, place: str) -> tuple[int, int]:
    """What the header of the first chunk says: the canvas, or the only picture."""
    chunk, body = data[12:16], data[20:30]
    if len(body) == 10:
        if chunk == b"VP8X":
            return 1 + int.from_bytes(body[4:7], "little"), 1 + int.from_bytes(body[7:10], "little")
        if chunk == b"VP8 " and body[3:6] == b"\x9d\x01\x2a":
            width, height = struct.unpack("<HH", body[6:10])
            return width & 0x3FFF, height & 0x3FFF
        if chunk == b"VP8L" and body[0] == 0x2F:
            bits = int.from_bytes(body[1:5], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    raise RequestError(f"{place} cannot be decoded as webp: it is damaged.", param=place)


def _opened(name: str, data: bytes | mmap) -> ImageFile:
    """Its header was read, its pixels were not. Each decoder is named: Pillow tries no other."""
    from PIL.BmpImagePlugin import BmpImageFile
    from PIL.GifImagePlugin import GifImageFile
    from PIL.JpegImagePlugin import JpegImageFile
    from PIL.PngImagePlugin import PngImageFile
    from PIL.WebPImagePlugin import WebPImageFile

    decoders: dict[str, Callable[[io.BytesIO], ImageFile]] = {
        "bmp": BmpImageFile,
        "gif": GifImageFile,
        "jpeg": JpegImageFile,
        "png": PngImageFile,
        "webp": WebPImageFile,
    }
    return decoders[name](io.BytesIO(data))


def _over_white(image: Image.Image) -> Image.Image:
    from PIL import Image

    if image.mode in _WIDE_MODES:
        return image.convert("I").point(lambda value: value * _WIDE_TO_BYTE).convert("L").convert("RGB")
    if not image.has_transparency_data:
        image.load()
        return image if image.mode == "RGB" else image.convert("RGB")
    with_alpha = image.convert("RGBA")
    white = Image.new("RGB", image.size, "white")
    white.paste(with_alpha, mask=with_alpha.getchannel("A"))
    return white


def _orientation(image: Image.Image) -> int:
    """1, upright, where the image does not say or says nothing that can be read."""
    try:
        orientation = image.getexif().get(_EXIF_ORIENTATION, 1)
    except Exception:  # the pixels are as good without it
        return 1
    return orientation if isinstance(orientation, int) else 1


def _upright(image: Image.Image, orientation: int) -> Image.Image:
    from PIL.Image import Transpose

    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    turn = turns.get(orientation)
    return image if turn is None else image.transpose(turn)
