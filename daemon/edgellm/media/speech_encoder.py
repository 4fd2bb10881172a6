"""SpeechEncoder: the sound of a voice becomes a stream of a format that clients play, piece by piece.

What is made goes out before the whole is known, so no format says how long it is: a WAV header has the greatest size
there is, as streams of WAV have. Needs the package av, imported by whoever encodes.
"""

from __future__ import annotations

import struct
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from edgellm.media.speech_formats import (
    SPEECH_CHANNELS,
    SPEECH_FORMATS,
    SPEECH_RATE_HZ,
    SPEECH_SAMPLE_BYTES,
    SpeechFormat,
    SpeechFormatName,
)

Samples = npt.NDArray[np.float32]

_UNKNOWN_BYTES: Final = 2**32 - 1
_WAV_HEADER: Final = struct.Struct("<4sI4s4sIHHIIHH4sI")
_PCM_OF_WAV: Final = 1
_SAMPLE_MAX: Final = 32767.0


class SpeechEncoder(Protocol):
    """What comes out of ``encode`` and ``finish`` together is one file. Used from one thread."""

    def encode(self, pcm: bytes) -> bytes:
        """The bytes that are ready; ``pcm`` is mono samples of 16 bits at SPEECH_RATE_HZ."""
        ...

    def finish(self) -> bytes: ...


def speech_encoder(name: SpeechFormatName) -> SpeechEncoder:
    """One for one file. ``name`` is one of SPEECH_FORMATS."""
    chosen = SPEECH_FORMATS[name]
    if chosen.codec:
        return _CodecEncoder(chosen)
    return _PlainEncoder(_wav_header() if name == "wav" else b"")


class Resampler:
    """Samples of a voice, at its own rate, become PCM at SPEECH_RATE_HZ; nothing clicks where pieces meet."""

    def __init__(self, rate_hz: int) -> None:
        import av

        self._frame_of = av.AudioFrame.from_ndarray
        self._rate_hz = rate_hz
        self._resampler: Any = av.AudioResampler(format="s16", layout="mono", rate=SPEECH_RATE_HZ)
        self._given_samples = 0

    def pcm(self, samples: Samples) -> bytes:
        """``samples`` are -1 to 1; what goes beyond is cut."""
        clipped = np.clip(samples * _SAMPLE_MAX, -_SAMPLE_MAX, _SAMPLE_MAX).astype(np.int16)
        frame = self._frame_of(clipped.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = self._rate_hz
        frame.pts = self._given_samples
        self._given_samples += len(clipped)
        return _pcm_of(self._resampler.resample(frame))

    def finish(self) -> bytes:
        """What the filter still holds."""
        return _pcm_of(self._resampler.resample(None)) if self._given_samples else b""


class _PlainEncoder:
    def __init__(self, header: bytes) -> None:
        self._header = header

    def encode(self, pcm: bytes) -> bytes:
        header, self._header = self._header, b""
        return header + pcm

    def finish(self) -> bytes:
        return self.encode(b"")


class _CodecEncoder:
    """FFmpeg's container around one of its codecs, into memory that is emptied as it fills."""

    def __init__(self, chosen: SpeechFormat) -> None:
        import av

        self._frame_of = av.AudioFrame.from_ndarray
        self._sink = _Sink()
        self._container: Any = av.open(
            self._sink,
            mode="w",
            format=chosen.container,
            container_options={"flush_packets": "1", **chosen.container_options},
        )
        self._stream: Any = self._container.add_stream(chosen.codec, rate=SPEECH_RATE_HZ)
        self._stream.layout = "mono"
        self._stream.format = chosen.sample_format
        if chosen.bits_per_second is not None:
            self._stream.bit_rate = chosen.bits_per_second
        self._given_samples = 0

    def encode(self, pcm: bytes) -> bytes:
        if pcm:
            samples = np.frombuffer(pcm, dtype="<i2").reshape(1, -1)
            frame = self._frame_of(samples, format="s16", layout="mono")
            frame.sample_rate = SPEECH_RATE_HZ
            frame.pts = self._given_samples
            self._given_samples += samples.shape[1]
            self._container.mux(self._stream.encode(frame))
        return self._sink.taken()

    def finish(self) -> bytes:
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._sink.taken()


class _Sink:
    """A file that can be written to and nothing else: containers that want to go back do without."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, piece: bytes) -> int:
        self._written += piece
        return len(piece)

    def taken(self) -> bytes:
        taken = bytes(self._written)
        self._written.clear()
        return taken


def _pcm_of(frames: Any) -> bytes:
    return b"".join(frame.to_ndarray().astype("<i2", copy=False).tobytes() for frame in frames)


def _wav_header() -> bytes:
    frame_bytes = SPEECH_CHANNELS * SPEECH_SAMPLE_BYTES
    return _WAV_HEADER.pack(
        *(b"RIFF", _UNKNOWN_BYTES, b"WAVE", b"fmt ", 16, _PCM_OF_WAV, SPEECH_CHANNELS, SPEECH_RATE_HZ),
        *(SPEECH_RATE_HZ * frame_bytes, frame_bytes, 8 * SPEECH_SAMPLE_BYTES, b"data", _UNKNOWN_BYTES),
    )
