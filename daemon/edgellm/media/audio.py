"""Audio: sound files of clients become samples for a model, piece by piece and within limits.

The container is told by its first bytes and forced upon FFmpeg: what it would guess includes playlists, which name
other files and addresses. Needs the package av, imported by whoever decodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from mmap import mmap
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from edgellm.errors import RequestCancelledError, RequestError
from edgellm.media.content_types import HEAD_BYTES, container_of
from edgellm.media.media_file import MediaFile

SAMPLE_RATE_HZ = 16_000  # what speech models hear
AUDIO_SECONDS_MAX = 4 * 3600
DECODING_SECONDS_MAX = 120.0  # of the clock, for one file
SOURCE_RATE_HZ_MAX = 384_000
SOURCE_CHANNELS_MAX = 8
FORMATS = "flac, mp3, mp4, m4a, ogg, wav or webm"

_PARAM = "file"

Samples = npt.NDArray[np.float32]


def check_audio(media: MediaFile, is_cancelled: Callable[[], bool]) -> float:
    """The seconds of sound in the file, all of which was decoded to find out. Raises as ``audio_samples`` does."""
    samples = sum(len(piece) for piece in audio_samples(media, is_cancelled))
    if samples == 0:
        raise RequestError("file holds no sound.", param=_PARAM)
    return samples / SAMPLE_RATE_HZ


def audio_samples(
    media: MediaFile,
    is_cancelled: Callable[[], bool],
    *,
    place: str = _PARAM,
    seconds_max: int | None = None,
) -> Iterator[Samples]:
    """Mono samples at SAMPLE_RATE_HZ, in pieces of no particular size. ``place`` is what errors call the file.

    Raises RequestError for what is no sound of a kind that is taken, or too much of it.
    """
    with media.reader() as stream:
        longest = AUDIO_SECONDS_MAX if seconds_max is None else seconds_max
        yield from samples_of(stream, is_cancelled, place=place, seconds_max=longest)


def samples_of(
    stream: BinaryIO | mmap, is_cancelled: Callable[[], bool], *, place: str, seconds_max: int
) -> Iterator[Samples]:
    """The same of a stream at its beginning."""
    import av

    container = container_of(stream.read(HEAD_BYTES))
    if container is None:
        raise RequestError(f"{place} must be {FORMATS}.", param=place)
    stream.seek(0)
    try:
        with av.open(stream, mode="r", format=container, metadata_errors="ignore") as opened:
            yield from _decoded(opened, is_cancelled, place, seconds_max)
    except (av.error.FFmpegError, ValueError, OverflowError) as error:
        if isinstance(error, RequestError):
            raise
        # FFmpeg's own words are about its insides, and may quote the file.
        raise RequestError(f"{place} cannot be decoded as {container}: it is damaged.", param=place) from None


def _decoded(opened: Any, is_cancelled: Callable[[], bool], place: str, seconds_max: int) -> Iterator[Samples]:
    import av

    if not opened.streams.audio:
        raise RequestError(f"{place} holds no sound.", param=place)
    track = opened.streams.audio[0]
    if not 0 < track.rate <= SOURCE_RATE_HZ_MAX or not 0 < track.channels <= SOURCE_CHANNELS_MAX:
        raise RequestError(
            f"{place} must have at most {SOURCE_CHANNELS_MAX} channels of at most {SOURCE_RATE_HZ_MAX} Hz.", param=place
        )
    resampler = av.AudioResampler(format="flt", layout="mono", rate=SAMPLE_RATE_HZ)
    samples_left = seconds_max * SAMPLE_RATE_HZ
    busy_seconds = 0.0
    frames = opened.decode(track)
    while True:
        begun = time.monotonic()
        frame = next(frames, None)
        pieces = [piece.to_ndarray()[0] for piece in resampler.resample(frame)]
        busy_seconds += time.monotonic() - begun
        if is_cancelled():
            raise RequestCancelledError("the request was cancelled")
        if busy_seconds > DECODING_SECONDS_MAX:
            raise RequestError(f"{place} takes too long to decode.", param=place)
        for piece in pieces:
            samples_left -= len(piece)
            if samples_left < 0:
                raise RequestError(f"{place} holds more than {seconds_max / 3600:g} hours of sound.", param=place)
            yield piece
        if frame is None:
            return
