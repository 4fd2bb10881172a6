"""Sound as files: every format decodes to what went in, and comes out while it is made."""

from __future__ import annotations

import importlib.util
import io
import os
import struct
import wave

import numpy as np
import pytest

from edgellm.media.speech_encoder import SPEECH_FORMATS, SPEECH_RATE_HZ, Resampler, Samples, speech_encoder

if importlib.util.find_spec("av") is None and os.environ.get("EDGELLM_CI") != "1":
    pytest.skip("the speech extra is not installed: make test sets it up", allow_module_level=True)

TONE_HZ = 440
PIECES = 5


def tone(duration_seconds: float, rate_hz: int) -> Samples:
    at_seconds = np.arange(round(duration_seconds * rate_hz)) / rate_hz
    return (0.5 * np.sin(2 * np.pi * TONE_HZ * at_seconds)).astype(np.float32)


def pcm_of(samples: Samples) -> bytes:
    return (samples * 32767).astype("<i2").tobytes()


def loudest_hz(samples: Samples, rate_hz: int) -> float:
    return float(np.argmax(np.abs(np.fft.rfft(samples))) * rate_hz / len(samples))


@pytest.mark.parametrize("name", sorted(set(SPEECH_FORMATS) - {"pcm"}))
def test_every_format_decodes_to_what_went_in_and_leaves_as_it_comes(name: str) -> None:
    import av

    encoder = speech_encoder(name)  # type: ignore[arg-type]
    given = pcm_of(tone(PIECES, SPEECH_RATE_HZ))
    size_bytes = len(given) // PIECES
    pieces = [encoder.encode(given[at : at + size_bytes]) for at in range(0, len(given), size_bytes)]
    assert all(pieces), "a second of sound stayed inside"
    with av.open(io.BytesIO(b"".join(pieces) + encoder.finish())) as opened:
        track = opened.streams.audio[0]
        resampler = av.AudioResampler(format="flt", layout="mono", rate=SPEECH_RATE_HZ)
        frames = [piece for frame in [*opened.decode(track), None] for piece in resampler.resample(frame)]
    samples = np.concatenate([frame.to_ndarray()[0] for frame in frames])
    assert len(samples) / SPEECH_RATE_HZ == pytest.approx(PIECES, abs=0.1)
    assert loudest_hz(samples, SPEECH_RATE_HZ) == pytest.approx(TONE_HZ, abs=1)


def test_samples_as_they_are_stay_as_they_are() -> None:
    encoder = speech_encoder("pcm")
    assert [encoder.encode(b"\x01\x02"), encoder.encode(b"\x03\x04"), encoder.finish()] == [
        b"\x01\x02",
        b"\x03\x04",
        b"",
    ]


def test_a_wav_header_comes_once_and_promises_all_there_may_be() -> None:
    encoder = speech_encoder("wav")
    file = encoder.encode(b"\x01\x02") + encoder.encode(b"\x03\x04") + encoder.finish()
    assert (file[:4], struct.unpack("<I", file[4:8])) == (b"RIFF", (2**32 - 1,))
    assert file[44:] == b"\x01\x02\x03\x04"
    with wave.open(io.BytesIO(file)) as opened:
        assert opened.readframes(1 << 20) == b"\x01\x02\x03\x04"


@pytest.mark.parametrize("name", SPEECH_FORMATS)
def test_a_file_without_sound_ends_well(name: str) -> None:
    speech_encoder(name).finish()  # type: ignore[arg-type]


@pytest.mark.parametrize("rate_hz", [16_000, 22_050, 24_000, 44_100])
def test_where_pieces_meet_nothing_is_lost_or_added(rate_hz: int) -> None:
    samples = tone(2.0, rate_hz)
    whole, in_pieces = Resampler(rate_hz), Resampler(rate_hz)
    expected = whole.pcm(samples) + whole.finish()
    cuts = np.split(samples, [100, 101, rate_hz, rate_hz + 7])
    assert b"".join([in_pieces.pcm(cut) for cut in cuts]) + in_pieces.finish() == expected
    assert len(expected) / 2 / SPEECH_RATE_HZ == pytest.approx(2.0, abs=0.005)


def test_what_is_too_loud_is_cut_and_does_not_wrap_around() -> None:
    loud = Resampler(SPEECH_RATE_HZ)
    sound = np.frombuffer(loud.pcm(np.full(1000, 3.0, dtype=np.float32)) + loud.finish(), dtype="<i2")
    assert sound.min() == sound.max() == 32767


def test_a_resampler_that_got_nothing_gives_nothing() -> None:
    assert Resampler(22_050).finish() == b""
