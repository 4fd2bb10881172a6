"""Messages between the front end and a worker: typed, positional, each with a number of its own.

``stream`` numbers a request on one worker; the front end chooses it. A changed field or number needs a new
PROTOCOL_VERSION: front end and worker are always of one installation, and a mixed one is refused at `Hello`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from edgellm.media.media_input import MediaKind
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import SpokenOutput
from edgellm.runtime.outputs import TranscriptFacts, TranscriptSegment

PROTOCOL_VERSION = 7


class Hello(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """First frame, to the worker. ``arguments`` are those of what the kind is loaded with: LLM, Transcriber or TTS.

    ``cpus`` are the ones it may use, empty for all. ``media_descriptor`` is its end of the socket that files come
    over, -1 where none do.
    """

    protocol: int
    edgellm_version: str
    arguments: dict[str, Any]
    cpus: list[int] = []
    log_level: str = "info"
    log_format: str = "text"
    log_to_journal: bool = False
    kind: str = "auto"
    media_descriptor: int = -1


class Submit(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """A request. ``prompt`` is None where ``token_ids`` say it all; ``params`` are those that differ from defaults.

    The files of ``media`` were sent over the media socket before.
    """

    stream: int
    params: dict[str, Any]
    token_ids: list[int] | None = None
    prompt: dict[str, Any] | None = None
    cache_domain: str = ""
    embedding: bool = False
    media: list[Medium] = []
    spoken: SpokenOutput | None = None


class Medium(msgspec.Struct, array_like=True, frozen=True):
    """A MediaInput, whose ``files`` travel as descriptors."""

    kind: MediaKind
    place: str
    files: int = 1
    resizes: bool = True
    fps: float | None = None


class Cancel(msgspec.Struct, array_like=True, frozen=True, tag=3):
    stream: int


class Credit(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """The front end has taken ``deltas`` of the stream: as many more may come."""

    stream: int
    deltas: int


class Ping(msgspec.Struct, array_like=True, frozen=True, tag=5):
    number: int


class Count(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """Count the prompt's tokens with the runtime's own tokenizer; ``number`` is what the answer names."""

    number: int
    params: dict[str, Any]
    prompt: dict[str, Any]


class Shutdown(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """Close the runtime and exit; what still runs is cancelled."""


class LogLevel(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """The least severe level to log from now on."""

    level: str


class Loading(msgspec.Struct, array_like=True, frozen=True, tag=20):
    stage: str
    fraction: float | None = None


class Ready(msgspec.Struct, array_like=True, frozen=True, tag=21):
    """The model is loaded."""

    protocol: int
    capabilities: Capabilities
    model_id: str
    bundle_dir: str


class NotLoaded(msgspec.Struct, array_like=True, frozen=True, tag=22):
    """The model cannot be loaded, for a reason that is the operator's to read. The worker exits after it."""

    code: str
    message: str


class Accepted(msgspec.Struct, array_like=True, frozen=True, tag=23):
    stream: int


class Delta(msgspec.Struct, array_like=True, frozen=True, tag=24, omit_defaults=True):
    """The fields of StreamDelta that text needs. An entry of ``logprobs`` is token id, logprob, token, bytes."""

    stream: int
    text: str
    token_ids: list[int]
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    matched_stop: int | None = None
    logprobs: list[list[tuple[int, float, str, bytes]]] | None = None
    embedding: bytes | None = None
    segments: list[TranscriptSegment] | None = None
    transcript: TranscriptFacts | None = None
    audio: bytes | None = None
    audio_frames: int = 0


class Final(msgspec.Struct, array_like=True, frozen=True, tag=25):
    """The runtime has let go of the stream. ``error`` is None when it ended well, as its last delta says."""

    stream: int
    error: Failure | None = None
    runtime_is_broken: bool = False


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """An error of our tree by its class name; the message was made for clients, ``reason`` for the log."""

    error: str
    message: str
    param: str | None = None
    retry_after_seconds: float | None = 1.0
    reason: str = ""


class Pong(msgspec.Struct, array_like=True, frozen=True, tag=26):
    """``steps_completed`` grows while the runtime works; ``resident`` streams are those it has not let go of."""

    number: int
    steps_completed: int
    resident: int
    scheduling: dict[str, int] | None = None
    context_cache: dict[str, int] | None = None
    media: dict[str, int] | None = None


class Counted(msgspec.Struct, array_like=True, frozen=True, tag=27):
    number: int
    tokens: int | None
    error: Failure | None = None


ToWorker = Hello | Submit | Cancel | Credit | Ping | Count | Shutdown | LogLevel
ToFrontEnd = Loading | Ready | NotLoaded | Accepted | Delta | Final | Pong | Counted
