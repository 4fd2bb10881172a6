"""Formats of speech: what they are called and made of. Plain values, for a front end that makes no sound itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

SPEECH_RATE_HZ: Final = 24_000  # of every format: what OpenAI's and NVIDIA's speech has
SPEECH_CHANNELS: Final = 1
SPEECH_SAMPLE_BYTES: Final = 2
SPEECH_SAMPLE_FORMAT: Final = "s16le"

SpeechFormatName = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]


@dataclass(frozen=True, slots=True)
class SpeechFormat:
    """``container`` and ``codec`` are FFmpeg's names, empty for samples as they are; ``bits_per_second`` where it is
    chosen. ``sample_format`` is what the codec takes.
    """

    media_type: str
    container: str = ""
    codec: str = ""
    sample_format: str = "s16"
    bits_per_second: int | None = None
    container_options: Mapping[str, str] = field(default_factory=dict)


SPEECH_FORMATS: Final[Mapping[str, SpeechFormat]] = {
    # Neither a table of contents, which would come last, nor a tag in front.
    "mp3": SpeechFormat(
        "audio/mpeg", "mp3", "libmp3lame", "s16p", 64_000, {"write_xing": "0", "id3v2_version": "0", "id3v1": "0"}
    ),
    # A page at least each 0.2 s: FFmpeg would fill pages of a second before the first leaves.
    "opus": SpeechFormat("audio/ogg", "ogg", "libopus", "s16", 32_000, {"page_duration": "200000"}),
    "aac": SpeechFormat("audio/aac", "adts", "aac", "fltp", 64_000),
    "flac": SpeechFormat("audio/flac", "flac", "flac", "s16"),
    "wav": SpeechFormat("audio/wav"),
    "pcm": SpeechFormat("audio/pcm"),
}
