"""Videos and sounds of chats: which frames stand for a video, and what is refused."""

from __future__ import annotations

import importlib.util
import io
import os
import wave
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgellm.errors import RequestError
from edgellm.media.limits import CHAT_AUDIO_SECONDS_MAX, REQUEST_PIXELS_MAX, SAMPLED_FRAMES_MAX, VIDEO_FRAMES_MAX
from edgellm.media.media_decoder import MediaDecoder
from edgellm.media.media_file import MediaFile
from edgellm.media.media_input import DecodedMedia, MediaInput
from edgellm.media.visual_limits import VisualLimits, VisualRules

if importlib.util.find_spec("av") is None and os.environ.get("EDGELLM_CI") != "1":
    pytest.skip("the audio extra is not installed: make test sets it up", allow_module_level=True)
av = importlib.import_module("av")

PLACE = "messages[0].content[1]"
WIDTH, HEIGHT = 64, 32


@pytest.fixture(scope="module")
def decoder() -> Iterator[MediaDecoder]:
    decoder = MediaDecoder()
    yield decoder
    decoder.close()


def file_of(content: bytes) -> MediaFile:
    file = MediaFile.empty()
    file.append(content)
    return file


def video(
    frame_count: int,
    rate: int = 10,
    container: str = "mp4",
    codec: str = "mpeg4",
    width: int = WIDTH,
    height: int = HEIGHT,
) -> bytes:
    """Frame i is grey of lightness i, from black on."""
    sink = io.BytesIO()
    with av.open(sink, mode="w", format=container) as opened:
        track = opened.add_stream(codec, rate=rate)
        track.width, track.height, track.pix_fmt = width, height, "yuv420p"
        track.options = {"qscale": "1"}
        for index in range(frame_count):
            grey = np.full((height, width, 3), index % 250, np.uint8)
            frame = av.VideoFrame.from_ndarray(grey, format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, rate)
            opened.mux(track.encode(frame))
        opened.mux(track.encode(None))
    return sink.getvalue()


def decoded(decoder: MediaDecoder, *contents: bytes, kind: Any = "video", fps: float | None = None) -> DecodedMedia:
    (result,) = decoder.job([MediaInput(kind, PLACE, tuple(map(file_of, contents)), fps=fps)]).result()
    return result


def refusal(decoder: MediaDecoder, *contents: bytes, kind: Any = "video", fps: float | None = None) -> str:
    with pytest.raises(RequestError) as refused:
        decoded(decoder, *contents, kind=kind, fps=fps)
    assert refused.value.param == PLACE
    return refused.value.message


def lightness(media: DecodedMedia) -> list[float]:
    return [float(frame.mean()) for frame in media.samples]


def near(values: Sequence[float], expected: Sequence[float]) -> bool:
    return len(values) == len(expected) and bool(np.allclose(values, expected, atol=4))


@pytest.mark.parametrize(
    ("container", "codec"),
    [("mp4", "mpeg4"), ("mov", "mpeg4"), ("matroska", "mpeg4"), ("avi", "mpeg4"), ("webm", "vp8")],
)
def test_frames_are_taken_evenly_from_every_container(decoder: MediaDecoder, container: str, codec: str) -> None:
    try:
        content = video(41, 10, container, {"vp8": "libvpx"}.get(codec, codec))
    except (av.error.FFmpegError, ValueError):
        pytest.skip(f"this FFmpeg writes no {codec}")
    media = decoded(decoder, content, fps=1.0)
    assert media.samples.shape == (4, HEIGHT, WIDTH, 3)
    assert near(lightness(media), [0, 13, 27, 40])
    assert media.timestamps_seconds == pytest.approx([0.0, 1.3, 2.7, 4.0], abs=0.11)
    assert media.fps == pytest.approx(1.0, abs=0.05)


def test_a_short_video_is_one_frame_and_a_high_rate_all_of_them(decoder: MediaDecoder) -> None:
    assert decoded(decoder, video(3, 30), fps=1.0).samples.shape[0] == 1
    assert decoded(decoder, video(12, 10), fps=60.0).samples.shape[0] == 12


def test_no_more_frames_are_taken_than_may_be(decoder: MediaDecoder) -> None:
    content = video(SAMPLED_FRAMES_MAX + 40, 30, width=16, height=16)
    media = decoded(decoder, content, fps=30.0)
    assert media.samples.shape[0] == SAMPLED_FRAMES_MAX
    assert media.timestamps_seconds[-1] == pytest.approx((SAMPLED_FRAMES_MAX + 39) / 30, abs=0.01)


def test_a_video_with_too_many_frames_is_refused_before_it_is_decoded(decoder: MediaDecoder) -> None:
    assert f"more than {VIDEO_FRAMES_MAX} frames" in refusal(
        decoder, video(VIDEO_FRAMES_MAX + 1, 60, width=16, height=16)
    )
    assert decoded(decoder, video(VIDEO_FRAMES_MAX, 60, width=16, height=16), fps=0.01).samples.shape[0] == 9


def test_sampled_frames_have_a_number_of_pixels_together(decoder: MediaDecoder) -> None:
    width, height = 1920, 1088
    most = REQUEST_PIXELS_MAX // (width * height)
    content = video(most + 1, 10, width=width, height=height)
    assert f"has {(most + 1) * width * height} pixels" in refusal(decoder, content, fps=10.0)


@pytest.mark.parametrize(
    "content", [b"", b"x" * 100, b"\x00\x00\x00\x18ftypmp42" + bytes(50), b"RIFF\x00\x00\x00\x00AVI "]
)
def test_what_is_no_video_is_refused(decoder: MediaDecoder, content: bytes) -> None:
    assert refusal(decoder, content)


def test_a_truncated_video_is_refused(decoder: MediaDecoder) -> None:
    whole = video(40, container="avi")
    for length in (100, len(whole) // 3):
        assert refusal(decoder, whole[:length], fps=10.0)


def test_a_sound_is_no_video_and_a_video_no_sound(decoder: MediaDecoder) -> None:
    sink = io.BytesIO()
    with av.open(sink, mode="w", format="mp4") as opened:
        track = opened.add_stream("aac", rate=16_000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 16_000
        opened.mux(track.encode(frame))
        opened.mux(track.encode(None))
    assert refusal(decoder, sink.getvalue()) == f"{PLACE} holds no video."
    assert refusal(decoder, video(3), kind="audio") == f"{PLACE} holds no sound."


def test_the_rules_of_an_engine_choose_the_frames_and_refuse_the_rest() -> None:
    limits = VisualLimits("internvl", 1024, min_image_tokens=300, tile_size=448, tile_patch_size=14)  # 256 a frame
    decoder = MediaDecoder(rules=VisualRules("internvl", "internvl", limits))
    assert decoded(decoder, video(40)).samples.shape[0] == 4  # of the eight that two a second are
    assert decoded(decoder, video(12)).samples.shape[0] == 2
    assert "have 256 visual tokens, and the engine takes no fewer than 300" in refusal(decoder, video(3))
    image = io.BytesIO()
    Image.new("RGB", (8, 8)).save(image, "png")
    inputs = [MediaInput("image", "a", (file_of(image.getvalue()),)), MediaInput("video", PLACE, (file_of(video(12)),))]
    with pytest.raises(RequestError, match="0 remain of the engine's 1024"):
        decoder.job(inputs).result()  # one image may take all that there is
    decoder.close()


def test_a_model_that_takes_one_video_is_given_no_image_beside_it() -> None:
    decoder = MediaDecoder(rules=VisualRules("nemotron_omni_vision", "nemotron"))
    inputs = [MediaInput("video", PLACE, (file_of(video(12)),))]
    assert decoder.job(inputs).result()[0].samples.shape[0] == 1  # one a second
    with pytest.raises(RequestError, match="2 videos and 0 images"):
        decoder.job(inputs * 2).result()
    decoder.close()


def test_frames_that_came_as_images_are_a_video(decoder: MediaDecoder) -> None:
    def frame(colour: str, width: int = 8) -> bytes:
        file = io.BytesIO()
        Image.new("RGB", (width, 4), colour).save(file, "png")
        return file.getvalue()

    media = decoded(decoder, frame("red"), frame("lime"), frame("blue"), fps=2.0)
    assert media.samples.shape == (3, 4, 8, 3)
    assert media.samples[:, 0, 0].tolist() == [[255, 0, 0], [0, 255, 0], [0, 0, 255]]
    assert (media.fps, list(media.timestamps_seconds)) == (2.0, [0.0, 0.5, 1.0])
    assert "frame 1 has 9 x 4 pixels, and frame 0 has 8 x 4" in refusal(decoder, frame("red"), frame("red", 9))
    assert "frame 1" in refusal(decoder, frame("red"), b"no image")


def wav(seconds: float, rate_hz: int = 8_000, channels: int = 2) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(2)
        sound.setframerate(rate_hz)
        wave_of_sound = np.sin(np.arange(int(seconds * rate_hz)) * 2 * np.pi * 440 / rate_hz) * 16_000
        sound.writeframes(np.repeat(wave_of_sound.astype("<i2"), channels).tobytes())
    return file.getvalue()


def test_a_sound_becomes_mono_samples_of_16_khz(decoder: MediaDecoder) -> None:
    media = decoded(decoder, wav(0.5), kind="audio")
    assert media.samples.dtype == np.float32
    assert len(media.samples) == pytest.approx(8_000, abs=50)
    loudest = int(np.argmax(np.abs(np.fft.rfft(media.samples))))
    assert loudest * 16_000 / len(media.samples) == pytest.approx(440, abs=4)


def test_a_sound_has_a_longest_duration(decoder: MediaDecoder) -> None:
    content = wav(CHAT_AUDIO_SECONDS_MAX + 2, rate_hz=1_000, channels=1)
    assert refusal(decoder, content, kind="audio") == f"{PLACE} holds more than 1 hours of sound."
