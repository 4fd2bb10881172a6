"""Buffers of the runtime contract: the files that loaders get are what was decoded, to the last bit."""

from __future__ import annotations

import io
import wave
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.native.runtime_driver import native_module

from edgellm.media.image_decoding import decode_rgb
from edgellm.media.limits import IMAGE_BYTES_MAX
from edgellm.media.media_input import DecodedMedia
from edgellm.runtime.native_buffers import bmp_file, native_buffers, wav_file

RANDOM = np.random.default_rng(5)


def pixels(width: int, height: int) -> Any:
    return RANDOM.integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (2, 3), (3, 2), (4, 5), (5, 4), (101, 7)])
def test_an_image_file_has_the_pixels_as_they_are(width: int, height: int) -> None:
    given = pixels(width, height)
    file = bmp_file(given)
    assert (decode_rgb(file) == given).all()
    assert (np.asarray(Image.open(io.BytesIO(file))) == given).all()


def test_a_sound_file_has_the_samples_in_16_bits() -> None:
    samples = np.array([0.0, 1.0, -1.0, 0.5, 7.0, -7.0], np.float32)
    with wave.open(io.BytesIO(wav_file(samples))) as sound:
        assert (sound.getnchannels(), sound.getsampwidth(), sound.getframerate()) == (1, 2, 16_000)
        assert np.frombuffer(sound.readframes(9), "<i2").tolist() == [0, 32767, -32767, 16384, 32767, -32767]


def test_images_and_videos_share_one_list_in_their_order() -> None:
    image = DecodedMedia("image", "a", pixels(6, 4), resizes=False)
    video = DecodedMedia("video", "b", np.stack([pixels(8, 2)] * 3), fps=2.0, timestamps_seconds=(0.0, 0.5, 1.0))
    seen, heard = native_buffers(native_module(), [video, image])
    assert not heard
    assert [(each.width, each.height, each.frames, each.is_video) for each in seen] == [
        (8, 2, 3, True),
        (6, 4, 1, False),
    ]
    assert (seen[0].fps, list(seen[0].timestamps)) == (2.0, [0.0, 0.5, 1.0])
    assert [each.do_resize for each in seen] == [True, False]


def test_an_image_of_more_pixels_than_bytes_of_a_file_may_be_is_loaded() -> None:
    large = np.zeros((3_600, 3_600, 3), np.uint8)
    assert large.nbytes > IMAGE_BYTES_MAX
    seen, _ = native_buffers(native_module(), [DecodedMedia("image", "a", large)])
    assert (seen[0].width, seen[0].height) == (3_600, 3_600)
