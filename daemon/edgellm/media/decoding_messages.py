"""Messages between a worker and the processes that decode for it, each one datagram of a private socketpair."""

from __future__ import annotations

from typing import Any

import msgspec

from edgellm.media import limits
from edgellm.media.media_input import MediaKind
from edgellm.media.visual_limits import VisualRules

MESSAGE_BYTES_MAX = 64 * 2**10


class Item(msgspec.Struct, array_like=True, frozen=True):
    """What becomes one array. The descriptors of its ``files`` came with the job, in order: several are the frames of a
    video.
    """

    kind: MediaKind
    place: str
    files: int = 1
    fps: float = 1.0
    frames_max: int = limits.SAMPLED_FRAMES_MAX


class Job(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """``memory_bytes_max`` is what the decoding process may take beside what it has and what comes out."""

    items: list[Item]
    pixels_max: int = limits.REQUEST_PIXELS_MAX
    seconds_max: float = limits.DECODING_SECONDS_MAX
    memory_bytes_max: int = limits.DECODING_MEMORY_BYTES_MAX
    rules: VisualRules | None = None  # of the model's engine, where there are any


class Begun(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """Comes with a descriptor of the process that decodes."""


class Decoded(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """The next item, as the memory file that comes with it."""

    shape: list[int]
    sample_type: str  # numpy's name
    fps: float = 1.0
    timestamps_seconds: list[float] = []


class Refused(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """What is wrong with the file, for the client."""

    message: str
    param: str | None
    is_modality: bool = False  # nothing of that kind can be decoded here


class Failed(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """It could not be decoded for a reason of ours, for the log."""

    error: str


FromDecoder = Begun | Decoded | Refused | Failed

_encoder = msgspec.msgpack.Encoder()
_job_decoder = msgspec.msgpack.Decoder(Job)
_answer_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(FromDecoder)


def encoded(message: msgspec.Struct) -> bytes:
    return _encoder.encode(message)


def job_of(data: bytes) -> Job:
    return _job_decoder.decode(data)


def answer_of(data: bytes) -> FromDecoder:
    """Raises msgspec.DecodeError for anything else."""
    answer: FromDecoder = _answer_decoder.decode(data)
    return answer
