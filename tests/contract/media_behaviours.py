"""Loaders of images, videos and sounds: which of the files that the adapter makes they take.

NVIDIA's image loaders put pixels into memory of a GPU's driver. Without one they end there, behind having read what
the file says of itself: that is how far these can be followed on such a machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tests.contract.behaviours import Behaviours, refused

from edgellm.media.audio import SAMPLE_RATE_HZ
from edgellm.runtime.native_buffers import bmp_file, wav_file

MEDIA = Behaviours()

_NO_DRIVER = "cudaMallocHost"


def _loaded(load: Callable[[], Any]) -> Any | None:
    """None where the file was taken and its pixels have no place on this machine."""
    try:
        return load()
    except RuntimeError as error:
        if _NO_DRIVER not in str(error):
            raise
        return None


def _pixels(width: int, height: int) -> Any:
    return np.random.default_rng(3).integers(0, 256, (height, width, 3), np.uint8)


@MEDIA
def a_bitmap_is_an_image(rt: Any) -> None:
    for width, height in ((1, 1), (7, 5), (640, 480)):
        image = _loaded(lambda size=(width, height): rt.load_image_from_bytes(bmp_file(_pixels(*size))))
        if image is not None:
            assert (image.width, image.height, image.channels, image.frames) == (width, height, 3, 1)
            assert not image.is_video
            assert image.do_resize
            image.do_resize = False
            assert not image.do_resize


@MEDIA
def what_is_no_image_is_not_loaded(rt: Any) -> None:
    assert refused(Exception, lambda: _loaded(lambda: rt.load_image_from_bytes(b"no image at all")))


@MEDIA
def frames_are_a_video(rt: Any) -> None:
    frames = np.stack([_pixels(8, 6)] * 3)
    video = _loaded(lambda: rt.load_video_from_array(frames, 2.0, [0.0, 0.5, 1.0]))
    if video is not None:
        assert (video.width, video.height, video.frames, video.is_video) == (8, 6, 3, True)
        assert (video.fps, list(video.timestamps)) == (2.0, [0.0, 0.5, 1.0])


@MEDIA
def a_wave_file_is_as_many_samples_as_it_has(rt: Any) -> None:
    sound = rt.load_audio_buffer_from_bytes(wav_file(np.zeros(SAMPLE_RATE_HZ // 2, np.float32)))
    assert (sound.sample_rate, sound.num_samples) == (SAMPLE_RATE_HZ, SAMPLE_RATE_HZ // 2)
    assert refused(RuntimeError, lambda: rt.load_audio_buffer_from_bytes(b"no sound at all"))
