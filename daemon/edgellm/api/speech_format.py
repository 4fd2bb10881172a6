"""What a spoken answer looks like on the wire: headers of sound, and OpenAI's events."""

from __future__ import annotations

import base64
import json
from typing import Any

from edgellm.media.speech_formats import (
    SPEECH_CHANNELS,
    SPEECH_FORMATS,
    SPEECH_RATE_HZ,
    SPEECH_SAMPLE_FORMAT,
    SpeechFormatName,
)

HEARTBEAT = b": speaking\n\n"


def sound_headers(format_name: SpeechFormatName) -> list[tuple[bytes, bytes]]:
    """Those of NVIDIA's server with the type: samples as they are do not say themselves what they are."""
    chosen = SPEECH_FORMATS[format_name]
    headers = [
        (b"content-type", chosen.media_type.encode()),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
        (b"x-sample-rate", b"%d" % SPEECH_RATE_HZ),
        (b"x-channels", b"%d" % SPEECH_CHANNELS),
    ]
    if not chosen.codec:
        headers.append((b"x-sample-format", SPEECH_SAMPLE_FORMAT.encode()))
    return headers


def sound_event(sound: bytes) -> bytes:
    return _event({"type": "speech.audio.delta", "audio": base64.b64encode(sound).decode()})


def done_event(input_tokens: int, output_tokens: int) -> bytes:
    """Input tokens are the sounds that the model read, output tokens the frames that it made."""
    usage = {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }
    return _event({"type": "speech.audio.done", "usage": usage})


def error_event(error: dict[str, object]) -> bytes:
    """``error`` is an error object, with what names it one around it."""
    return _event(error)


def _event(value: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(value, separators=(",", ":")).encode()
