"""What a spoken answer looks like on the wire: headers of sound, and OpenAI's events."""

from __future__ import annotations

import base64

from edgellm.api.delta_events import json_event
from edgellm.media.speech_formats import (
    SPEECH_CHANNELS,
    SPEECH_FORMATS,
    SPEECH_RATE_HZ,
    SPEECH_SAMPLE_FORMAT,
    SpeechFormatName,
)
from edgellm.runtime.outputs import StreamDelta


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


class SpeechEvents:
    """OpenAI's events of speech, a delta of sound each."""

    heartbeat = b": speaking\n\n"

    def __init__(self) -> None:
        self._input_tokens = self._output_tokens = 0

    def event(self, delta: StreamDelta) -> bytes:
        self._input_tokens += delta.prompt_tokens or 0
        self._output_tokens += delta.audio_frames
        if not delta.audio_bytes:
            return b""
        return json_event({"type": "speech.audio.delta", "audio": base64.b64encode(delta.audio_bytes).decode()})

    def done(self) -> bytes:
        """Input tokens are the sounds that the model read, output tokens the frames that it made."""
        usage = {
            "input_tokens": self._input_tokens,
            "output_tokens": self._output_tokens,
            "total_tokens": self._input_tokens + self._output_tokens,
        }
        return json_event({"type": "speech.audio.done", "usage": usage})
