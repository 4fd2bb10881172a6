"""Sound files: which are taken, and both sides of each limit."""

from __future__ import annotations

import importlib.util
import io
import os
import wave
from collections.abc import Callable

import pytest

from edgellm.errors import RequestCancelledError, RequestError
from edgellm.media import audio
from edgellm.media.audio import check_audio
from edgellm.media.content_types import container_of
from edgellm.media.media_file import MediaFile, silence

if importlib.util.find_spec("av") is None and os.environ.get("EDGELLM_CI") != "1":
    pytest.skip("the audio extra is not installed: make test sets it up", allow_module_level=True)


def never() -> bool:
    return False


def sound(duration_seconds: float = 0.5, *, rate_hz: int = 16_000, channels: int = 1) -> bytes:
    content = io.BytesIO()
    with wave.open(content, "wb") as written:
        written.setnchannels(channels)
        written.setsampwidth(2)
        written.setframerate(rate_hz)
        written.writeframes(bytes(2 * channels * round(rate_hz * duration_seconds)))
    return content.getvalue()


def media_of(content: bytes) -> MediaFile:
    media = MediaFile.empty()
    media.append(content)
    return media


def seconds_of(content: bytes, is_cancelled: Callable[[], bool] = never) -> float:
    media = media_of(content)
    try:
        return check_audio(media, is_cancelled)
    finally:
        media.close()


@pytest.mark.parametrize(("rate_hz", "channels"), [(8000, 1), (16_000, 2), (44_100, 2), (384_000, 1), (16_000, 8)])
def test_any_rate_and_number_of_channels_becomes_what_models_hear(rate_hz: int, channels: int) -> None:
    assert seconds_of(sound(rate_hz=rate_hz, channels=channels)) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(("rate_hz", "channels"), [(384_001, 1), (16_000, 9)])
def test_more_than_that_is_refused(rate_hz: int, channels: int) -> None:
    with pytest.raises(RequestError) as refused:
        seconds_of(sound(rate_hz=rate_hz, channels=channels))
    assert refused.value.param == "file"


def test_sound_is_taken_up_to_its_longest_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio, "AUDIO_SECONDS_MAX", 1)
    assert seconds_of(sound(0.99)) == pytest.approx(0.99, abs=0.01)
    with pytest.raises(RequestError, match="hours of sound"):
        seconds_of(sound(1.1))


def test_a_file_that_decodes_for_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio, "DECODING_SECONDS_MAX", 0.0)
    with pytest.raises(RequestError, match="too long to decode"):
        seconds_of(sound())


def test_decoding_ends_when_nobody_wants_it_any_more() -> None:
    with pytest.raises(RequestCancelledError):
        seconds_of(sound(), is_cancelled=lambda: True)


@pytest.mark.parametrize(
    "head",
    [
        b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1/",
        b"ffconcat version 1.0\nfile /etc/passwd",
        b"<?xml version='1.0'?><MPD>",
        b"\x89PNG\r\n\x1a\n0000",
        b"RIFF0000AVI ",
        b"\xff",
        b"",
    ],
)
def test_playlists_and_what_is_no_sound_are_never_opened(head: bytes) -> None:
    assert container_of(head) is None
    with pytest.raises(RequestError, match="file must be flac, mp3"):
        seconds_of(head)


@pytest.mark.parametrize(
    ("head", "container"),
    [
        (b"RIFF\x00\x00\x00\x00WAVE", "wav"),
        (b"fLaC\x00\x00\x00\x22", "flac"),
        (b"OggS\x00\x02", "ogg"),
        (b"ID3\x04\x00", "mp3"),
        (b"\xff\xfb\x90\x00", "mp3"),
        (b"\x00\x00\x00\x20ftypM4A ", "mov"),
        (b"\x1aE\xdf\xa3\x01", "matroska"),
    ],
)
def test_a_container_is_told_by_its_first_bytes(head: bytes, container: str) -> None:
    assert container_of(head) == container


def test_a_file_without_a_sample_is_refused() -> None:
    with pytest.raises(RequestError):
        seconds_of(sound(0))


def test_readers_of_one_file_do_not_move_each_other() -> None:
    media = silence(1)
    with media.reader() as first, media.reader() as second:
        assert first.read(4) == second.read(4) == b"RIFF"
    media.close()
    media.close()
    assert media.fileno() == -1
