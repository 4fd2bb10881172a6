"""Images: what is decoded looks as its maker meant it, and what is hostile is refused before it takes memory."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgellm.errors import RequestError
from edgellm.media.image_decoding import decode_rgb
from edgellm.media.limits import IMAGE_BYTES_MAX, IMAGE_PIXELS_MAX, ImageLimits

FORMATS = ["png", "jpeg", "webp", "gif", "bmp"]
FAITHFUL: dict[str, dict[str, Any]] = {"webp": {"lossless": True}, "jpeg": {"quality": 100, "subsampling": 0}}
CORNERS = {"top left": (255, 0, 0), "top right": (0, 255, 0), "bottom left": (0, 0, 255), "bottom right": (0, 0, 0)}
SIDE = 16


def four_corners() -> Image.Image:
    """Twice as wide as high, each quarter of a colour of its own."""
    image = Image.new("RGB", (2 * SIDE, SIDE))
    for colour, left, top in zip(CORNERS.values(), (0, SIDE, 0, SIDE), (0, 0, SIDE // 2, SIDE // 2), strict=True):
        image.paste(colour, (left, top, left + SIDE, top + SIDE // 2))
    return image


def encoded(image: Image.Image, name: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format=name, **options)
    return file.getvalue()


def png_of(*chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG file chunk by chunk, for sizes that its pixels do not have."""
    file = b"\x89PNG\r\n\x1a\n"
    for kind, body in chunks:
        file += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return file


def png_header(width: int, height: int) -> tuple[bytes, bytes]:
    return b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)


def empty_png(width: int, height: int) -> bytes:
    return png_of(png_header(width, height), (b"IDAT", zlib.compress(b"")), (b"IEND", b""))


def refusal(data: bytes, limits: ImageLimits | None = None) -> str:
    with pytest.raises(RequestError) as refused:
        decode_rgb(data, limits or ImageLimits(), place="messages[1].content[2]")
    assert refused.value.param == "messages[1].content[2]"
    return refused.value.message


@pytest.mark.parametrize("name", FORMATS)
def test_an_image_is_height_by_width_by_red_green_blue(name: str) -> None:
    pixels = decode_rgb(encoded(four_corners(), name, **FAITHFUL.get(name, {})))
    assert pixels.dtype == np.uint8
    assert pixels.shape == (SIDE, 2 * SIDE, 3)
    assert pixels.flags.c_contiguous
    assert np.abs(pixels.astype(int) - np.asarray(four_corners()).astype(int)).mean() < 3


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "I;16"])
def test_grey_palette_and_16_bits_become_colours(mode: str) -> None:
    ramp = np.linspace(0, 255, 64).astype(np.uint8).reshape(8, 8)
    wide = mode == "I;16"
    source = Image.fromarray(ramp.astype(np.uint16) * 257) if wide else Image.fromarray(ramp).convert(mode)
    pixels = decode_rgb(encoded(source, "png"))
    expected = ramp if wide else np.asarray(source.convert("L"))
    assert np.abs(pixels[..., 0].astype(int) - expected.astype(int)).max() <= 1
    assert (pixels == pixels[..., :1]).all()


def test_a_jpeg_for_print_has_the_colours_it_has_on_paper() -> None:
    pixels = decode_rgb(encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "jpeg", quality=100))
    assert pixels[..., 0].min() > 240
    assert pixels[..., 1:].max() < 15


@pytest.mark.parametrize("name", ["png", "webp"])
def test_what_lets_something_through_lies_over_white(name: str) -> None:
    image = Image.new("RGBA", (3, 1))
    image.putdata([(255, 0, 0, 255), (255, 0, 0, 0), (0, 0, 0, 128)])
    options: dict[str, Any] = {"lossless": True, "exact": True} if name == "webp" else {}
    assert decode_rgb(encoded(image, name, **options)).tolist() == [[[255, 0, 0], [255, 255, 255], [127, 127, 127]]]


@pytest.mark.parametrize(("orientation", "top_left"), [(1, "top left"), (3, "bottom right"), (6, "bottom left")])
def test_a_picture_of_a_camera_that_was_held_askew_is_upright(orientation: int, top_left: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = decode_rgb(encoded(four_corners(), "png", exif=exif))
    assert pixels.shape[:2] == ((2 * SIDE, SIDE) if orientation == 6 else (SIDE, 2 * SIDE))
    assert tuple(pixels[0, 0]) == CORNERS[top_left]


def test_an_orientation_that_cannot_be_read_is_none() -> None:
    good = encoded(four_corners(), "png", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\x7f")
    assert decode_rgb(good).shape == (SIDE, 2 * SIDE, 3)


@pytest.mark.parametrize("name", ["gif", "webp", "png"])
def test_of_an_animation_the_first_picture_is_taken(name: str) -> None:
    red, blue = Image.new("RGB", (8, 8), "red"), Image.new("RGB", (8, 8), "blue")
    options: dict[str, Any] = {"lossless": True} if name == "webp" else {}
    animated = encoded(red, name, save_all=True, append_images=[blue], **options)
    assert (decode_rgb(animated) == (255, 0, 0)).all()


@pytest.mark.parametrize("data", [b"", b"hello", b"<svg/>", b"%PDF-1.7", b"\x00\x00\x00\x1cftypavif"])
def test_what_is_no_image_of_these_formats_is_refused_by_name(data: bytes) -> None:
    assert refusal(data) == "messages[1].content[2] must be an image: png, jpeg, webp, gif or bmp."


@pytest.mark.parametrize("name", FORMATS)
def test_a_truncated_image_is_refused(name: str) -> None:
    noise = np.random.default_rng(7).integers(0, 256, (64, 64, 3), np.uint8)
    data = encoded(Image.fromarray(noise), name)
    for length in (16, 40, len(data) // 2):
        message = refusal(data[:length])
        assert message == f"messages[1].content[2] cannot be decoded as {name}: it is damaged."


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_images_give_pixels_or_one_kind_of_refusal(name: str) -> None:
    random = np.random.default_rng(11)
    whole = np.frombuffer(encoded(four_corners(), name), np.uint8)
    for _ in range(300):
        damaged = whole.copy()
        damaged[random.integers(0, len(damaged), 4)] = random.integers(0, 256, 4, np.uint8)
        try:
            pixels = decode_rgb(damaged.tobytes(), ImageLimits(pixels_max=1 << 20))
        except RequestError:
            continue
        assert pixels.ndim == 3


def test_limits_hold_on_both_sides() -> None:
    data = encoded(four_corners(), "png")
    pixels = 2 * SIDE * SIDE
    assert decode_rgb(data, ImageLimits(len(data), pixels, 2 * SIDE)).size == 3 * pixels
    assert refusal(data, ImageLimits(bytes_max=len(data) - 1)) == (
        f"messages[1].content[2] has {len(data)} bytes; an image may have {len(data) - 1}."
    )
    assert "has 32 x 16 pixels; an image may have 511 of them" in refusal(data, ImageLimits(pixels_max=pixels - 1))
    assert "and 31 on a side" in refusal(data, ImageLimits(side_pixels_max=2 * SIDE - 1))


def bombs() -> dict[str, bytes]:
    """Small files that announce more pixels than may be."""
    width, height = 16_000, 16_000
    assert width * height > IMAGE_PIXELS_MAX
    canvas = struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    lossless = struct.pack("<I", (width - 1) | (height - 1) << 14)
    return {
        "png": empty_png(width, height),
        "png on its side": empty_png(1_000_000, 1),
        "jpeg": b"\xff\xd8\xff\xc0\x00\x11\x08" + struct.pack(">HH", height, width)
        + b"\x03\x01\x11\x00\x02\x11\x01\x03\x11\x01\xff\xda" + bytes(64),
        "gif": b"GIF89a" + struct.pack("<HH", width, height) + b"\x80\x00\x00" + bytes(6)
        + b"," + struct.pack("<HHHH", 0, 0, width, height) + b"\x00\x02\x02\x44\x01\x00;",
        "bmp": b"BM" + bytes(8) + struct.pack("<IIiiHHIIIIII", 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0),
        "webp canvas": b"RIFF\x40\x00\x00\x00WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + canvas + bytes(64),
        "webp lossless": b"RIFF\x40\x00\x00\x00WEBPVP8L" + struct.pack("<I", 5) + b"\x2f" + lossless + bytes(64),
        "webp": b"RIFF\x40\x00\x00\x00WEBPVP8 " + struct.pack("<I", 10) + b"\x00\x00\x00\x9d\x01\x2a"
        + struct.pack("<HH", 16_000, 16_000) + bytes(64),
    }  # fmt: skip


@pytest.mark.parametrize("name", list(bombs()))
def test_a_bomb_is_refused_for_the_pixels_it_announces(name: str) -> None:
    assert "pixels; an image may have" in refusal(bombs()[name])


def test_a_file_beyond_the_limit_is_refused_unread() -> None:
    assert refusal(b"\x89PNG\r\n\x1a\n" + bytes(IMAGE_BYTES_MAX)).endswith(f"an image may have {IMAGE_BYTES_MAX}.")


def test_no_decoder_is_loaded_before_an_image_comes() -> None:
    code = (
        "import sys, edgellm.media.image_decoding; sys.exit(any(name.split('.')[0] == 'PIL' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
