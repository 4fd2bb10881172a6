"""Native chunks and responses become StreamDeltas and CompletionOutputs."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from edgellm.runtime.contract import GenerationResponse, StreamChunk
from edgellm.runtime.outputs import CompletionOutput, LogprobEntry, StreamDelta

# NOT_FINISHED is absent on purpose: a finished text without a reason is a bug, and None shows it.
_FINISH_REASON_BY_NAME = {
    "END_ID": "stop",
    "STOP_WORDS": "stop",
    "LENGTH": "length",
    "CANCELLED": "cancelled",
    "ERROR": "error",
}


def finish_reason_name(reason: Any) -> str | None:
    """Give the API's word for a FinishReason, None for NOT_FINISHED and unknown ones."""
    return _FINISH_REASON_BY_NAME.get(reason.name)


def to_delta(chunk: StreamChunk) -> StreamDelta:
    """Give one chunk as a delta; negative counts are unknown ones."""
    finished = chunk.finished
    logprobs = chunk.logprobs
    return StreamDelta(
        text=chunk.text,
        token_ids=chunk.token_ids,
        prompt_tokens=_count(chunk.prompt_token_count),
        finished=finished,
        finish_reason=finish_reason_name(chunk.reason) if finished else None,
        logprobs=_logprobs(logprobs) if logprobs else None,
        cached_tokens=_count(getattr(chunk, "reused_token_count", -1)),
        matched_stop=_count(getattr(chunk, "matched_stop", -1)) if finished else None,
    )


def merge_deltas(deltas: Sequence[StreamDelta]) -> StreamDelta:
    """Give one delta that says what these say in order; at least one is needed."""
    if len(deltas) == 1:
        return deltas[0]
    last = deltas[-1]
    logprobs = [entries for delta in deltas if delta.logprobs for entries in delta.logprobs]
    return StreamDelta(
        text="".join([delta.text for delta in deltas]),
        token_ids=[token_id for delta in deltas for token_id in delta.token_ids],
        prompt_tokens=_last_known([delta.prompt_tokens for delta in deltas]),
        finished=last.finished,
        finish_reason=last.finish_reason,
        logprobs=logprobs or None,
        cached_tokens=_last_known([delta.cached_tokens for delta in deltas]),
        matched_stop=last.matched_stop,
        embedding=last.embedding,
        segments=[segment for delta in deltas if delta.segments for segment in delta.segments] or None,
        transcript=last.transcript,
        audio_bytes=b"".join([delta.audio_bytes for delta in deltas if delta.audio_bytes]) or None,
        audio_frames=sum([delta.audio_frames for delta in deltas]),
    )


def split_sound(delta: StreamDelta, sound_bytes_max: int) -> Iterator[StreamDelta]:
    """Give deltas that say the same, none with more sound than that; what else it says comes with the last."""
    sound = delta.audio_bytes or b""
    last_bytes = max(0, len(sound) - 1) // sound_bytes_max * sound_bytes_max
    for begin in range(0, last_bytes, sound_bytes_max):
        yield StreamDelta(audio_bytes=sound[begin : begin + sound_bytes_max])
    yield replace(delta, audio_bytes=sound[last_bytes:]) if last_bytes else delta


def embedding_bytes(response: GenerationResponse) -> bytes | None:
    """Give the vector of the one sequence of a response, None where it has none."""
    vector = _first(getattr(response, "embeddings", None))
    return struct.pack(f"<{len(vector)}f", *vector) if vector else None


def to_output(response: GenerationResponse) -> CompletionOutput:
    """Give the one sequence of a response; a missing text is the empty one, negative counts are unknown ones."""
    reasons = response.finish_reasons
    logprobs = _first(response.logprobs)
    return CompletionOutput(
        text=_first(response.output_texts) or "",
        token_ids=_first(response.output_ids) or [],
        prompt_tokens=_count(_first(response.prompt_token_counts)),
        finish_reason=finish_reason_name(reasons[0]) if reasons else None,
        logprobs=_logprobs(logprobs) if logprobs else None,
        cached_tokens=_count(_first(getattr(response, "reused_token_counts", None))),
        matched_stop=_count(_first(getattr(response, "matched_stops", None))),
    )


def _first(values: Sequence[Any] | None) -> Any:
    return values[0] if values else None


def _count(value: int | None) -> int | None:
    return None if value is None or value < 0 else value


def _last_known(values: Sequence[int | None]) -> int | None:
    return next((value for value in reversed(values) if value is not None), None)


def _logprobs(token_logprobs: Sequence[Sequence[Any]]) -> list[list[LogprobEntry]]:
    return [[_logprob_entry(entry) for entry in entries] for entries in token_logprobs]


def _logprob_entry(entry: Any) -> LogprobEntry:
    piece = bytes(entry.piece)
    return LogprobEntry(entry.token_id, entry.logprob, piece.decode("utf-8", "replace"), piece)
