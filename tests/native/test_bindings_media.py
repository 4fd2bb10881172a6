"""Decoded media in the module: what the values hold, and what is refused."""

from __future__ import annotations

import gc
import io
import wave
from pathlib import Path

import numpy as np
import pytest
from tests.models.pictures import noise, png_of
from tests.native.runtime_driver import native_module

module = native_module()


def sound_file(samples: int, rate_hz: int) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(b"\x00\x10" * samples)
    return stream.getvalue()


def test_an_image_has_the_pixels_of_its_file(tmp_path: Path) -> None:
    picture = noise(5, 7)
    path = tmp_path / "picture.png"
    path.write_bytes(png_of(picture))
    for image in (module.load_image_from_bytes(path.read_bytes()), module.load_image_from_path(str(path))):
        assert (image.width, image.height, image.channels) == (7, 5, 3)
        assert (image.frames, image.is_video, image.fps, image.timestamps, image.do_resize) == (1, False, 1.0, [], True)
        np.testing.assert_array_equal(image.pixels, picture)


def test_an_image_of_decoded_pixels() -> None:
    picture = noise(5, 7)
    image = module.load_image_from_array(picture)
    assert (image.width, image.height, image.is_video) == (7, 5, False)
    np.testing.assert_array_equal(image.pixels, picture)
    picture[0, 0, 0] ^= 1
    assert image.pixels[0, 0, 0] != picture[0, 0, 0]
    for shape in ((5, 7), (5, 7, 4), (0, 7, 3), (1, 5, 7, 3)):
        with pytest.raises(RuntimeError, match="load_image_from_array: array must have the shape"):
            module.load_image_from_array(np.zeros(shape, np.uint8))


def test_pixels_outlive_their_image_and_cannot_be_changed() -> None:
    picture = noise(4, 4)
    image = module.load_image_from_bytes(png_of(picture))
    pixels = image.pixels
    del image
    gc.collect()
    np.testing.assert_array_equal(pixels, picture)
    with pytest.raises(ValueError, match="read-only"):
        pixels[0, 0, 0] = 1


def test_a_request_shares_the_pixels_of_its_images() -> None:
    image = module.load_image_from_bytes(png_of(noise(4, 4)))
    request = module.Request()
    request.image_buffers = [image, image]
    assert [held.pixels.ctypes.data for held in request.image_buffers] == [image.pixels.ctypes.data] * 2


def test_a_video_of_an_array() -> None:
    frames = np.stack([noise(4, 6, seed) for seed in range(3)])
    video = module.load_video_from_array(frames, 2.0, [0.0, 0.5, 1.0])
    assert (video.frames, video.height, video.width, video.channels, video.is_video) == (3, 4, 6, 3, True)
    assert (video.fps, video.timestamps) == (2.0, [0.0, 0.5, 1.0])
    np.testing.assert_array_equal(video.pixels, frames)


def test_a_video_of_files(tmp_path: Path) -> None:
    pictures = [noise(4, 6, seed) for seed in range(2)]
    paths = [tmp_path / f"{number}.png" for number in range(2)]
    for path, picture in zip(paths, pictures, strict=True):
        path.write_bytes(png_of(picture))
    video = module.load_video_from_paths([str(path) for path in paths], fps=4.0)
    assert (video.frames, video.is_video, video.fps) == (2, True, 4.0)
    np.testing.assert_array_equal(video.pixels, np.stack(pictures))
    paths[1].write_bytes(png_of(noise(6, 4)))
    with pytest.raises(RuntimeError, match="the frames are not all of one size"):
        module.load_video_from_paths([str(path) for path in paths])


@pytest.mark.parametrize(
    ("shape", "options", "cause"),
    [
        ((4, 4, 3), {}, r"must have the shape \(frames, height, width, 3\)"),
        ((1, 4, 4, 4), {}, r"must have the shape \(frames, height, width, 3\)"),
        ((0, 4, 4, 3), {}, "between 1 and 768 frames, not 0"),
        ((769, 1, 1, 3), {}, "between 1 and 768 frames, not 769"),
        ((2, 4, 4, 3), {"fps": 0.0}, "fps must be above 0"),
        ((2, 4, 4, 3), {"fps": float("nan")}, "fps must be above 0"),
        ((2, 4, 4, 3), {"timestamps": [0.0]}, "timestamps has 1 entries and the video 2 frames"),
    ],
)
def test_a_video_that_cannot_be_is_refused(shape: tuple[int, ...], options: dict[str, object], cause: str) -> None:
    with pytest.raises(RuntimeError, match=f"load_video_from_array: .*{cause}"):
        module.load_video_from_array(np.zeros(shape, np.uint8), **options)


def test_what_is_no_image_is_refused_by_the_decoder(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="load_image_from_bytes: image must be an image: png, jpeg"):
        module.load_image_from_bytes(b"no image")
    with pytest.raises(RuntimeError, match="load_image_from_path: the path names no file"):
        module.load_image_from_path("/dev/zero")
    with pytest.raises(RuntimeError, match="load_image_from_path: the path names no file"):
        module.load_image_from_path(str(tmp_path))
    huge = tmp_path / "huge.png"
    with huge.open("wb") as stream:
        stream.truncate(33 << 20)
    with pytest.raises(RuntimeError, match="load_image_from_path: the file has more than 33554432 bytes"):
        module.load_image_from_path(str(huge))


def test_sound_comes_at_16_khz() -> None:
    pytest.importorskip("av")
    audio = module.load_audio_buffer_from_bytes(sound_file(8000, 8000))
    assert (audio.num_samples, audio.sample_rate) == (16_000, 16_000)
    with pytest.raises(RuntimeError, match="load_audio_buffer_from_bytes: file must be flac"):
        module.load_audio_buffer_from_bytes(b"no audio")
