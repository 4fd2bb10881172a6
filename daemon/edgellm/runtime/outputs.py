"""What a generation returns: names and meanings of NVIDIA's Python API, with two extensions at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class LogprobEntry:
    """``logprob`` is a natural logarithm; ``token`` may hold U+FFFD for part of a code point, ``bytes`` is exact."""

    token_id: int
    logprob: float
    token: str
    bytes: bytes


@dataclass(frozen=True, slots=True)
class TranscriptWord:
    word: str
    start_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True)
class TranscriptSegment:
    """A piece of a transcript and how sure the model was of it. Texts of segments concatenate to the transcript."""

    text: str
    start_seconds: float
    end_seconds: float
    token_ids: list[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    words: list[TranscriptWord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TranscriptPiece:
    """A piece of a transcript by a model that does not know when it was said."""

    text: str
    token_ids: list[int] = field(default_factory=list)
    prompt_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TranscriptFacts:
    """``language`` is the one that was asked for or heard, "" where neither is known."""

    language: str
    duration_seconds: float


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """``logprobs`` has one list a generated token: the chosen token first, then the most likely ones."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    prompt_tokens: int | None = None
    finish_reason: str | None = None
    logprobs: list[list[LogprobEntry]] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    reasoning: str | None = None
    cached_tokens: int | None = None
    matched_stop: int | None = None


@dataclass(frozen=True, slots=True)
class StreamDelta:
    """``text`` is final: whole code points, no part of a stop string. Deltas concatenate to the whole text.

    The last delta has ``finished`` and a ``finish_reason``. ``prompt_tokens`` and ``cached_tokens`` (prompt
    tokens taken from the context cache) are None until the runtime knows them. ``matched_stop`` is the index
    of the stop string that ended the text. ``embedding`` comes with the last delta of a request for one: numbers of
    32 bits, little-endian. ``segments`` say when the text of this delta was spoken; ``transcript`` comes with the last.
    ``audio_frames`` are those of sound that a model made for ``audio_bytes``: they count as its tokens.
    """

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    prompt_tokens: int | None = None
    finished: bool = False
    finish_reason: str | None = None
    logprobs: list[list[LogprobEntry]] | None = None
    audio_bytes: bytes | None = None
    cached_tokens: int | None = None
    matched_stop: int | None = None
    embedding: bytes | None = None
    segments: list[TranscriptSegment] | None = None
    transcript: TranscriptFacts | None = None
    audio_frames: int = 0
