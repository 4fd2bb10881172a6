"""Transcripts on the wire: OpenAI's five formats of a whole one, and the events of one that streams."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgellm.api.delta_events import json_event
from edgellm.runtime.outputs import StreamDelta, TranscriptFacts, TranscriptSegment

JSON_TYPE = b"application/json"
TEXT_TYPE = b"text/plain; charset=utf-8"
_SEEK_PER_SECOND = 100  # OpenAI counts frames of 10 ms


@dataclass(slots=True)
class Transcript:
    """One as it grows."""

    pieces: list[str] = field(default_factory=list)
    segments: list[TranscriptSegment] = field(default_factory=list)
    facts: TranscriptFacts = field(default_factory=lambda: TranscriptFacts("", 0.0))

    def take(self, delta: StreamDelta) -> None:
        self.pieces.append(delta.text)
        self.segments += delta.segments or ()
        if delta.transcript is not None:
            self.facts = delta.transcript

    @property
    def text(self) -> str:
        return "".join(self.pieces).strip()


def whole(
    transcript: Transcript, response_format: str, *, task: str, granularities: Sequence[str]
) -> tuple[bytes, bytes]:
    """Content type and body."""
    match response_format:
        case "text":
            return TEXT_TYPE, f"{transcript.text}\n".encode()
        case "srt":
            return TEXT_TYPE, _srt(transcript.segments).encode()
        case "vtt":
            return TEXT_TYPE, _vtt(transcript.segments).encode()
        case "verbose_json":
            return JSON_TYPE, _json(_verbose(transcript, task, granularities))
        case _:
            return JSON_TYPE, _json({"text": transcript.text, "usage": _usage(transcript.facts)})


class TranscriptEvents:
    """OpenAI's events of a transcript, a piece of text each."""

    heartbeat = b": waiting\n\n"

    def __init__(self) -> None:
        self._transcript = Transcript()

    def event(self, delta: StreamDelta) -> bytes:
        # The text of the events is that of the whole, which begins without a space.
        text = delta.text if self._transcript.text else delta.text.lstrip()
        self._transcript.take(delta)
        return json_event({"type": "transcript.text.delta", "delta": text}) if text else b""

    def done(self) -> bytes:
        whole = self._transcript
        return json_event({"type": "transcript.text.done", "text": whole.text, "usage": _usage(whole.facts)})


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _usage(facts: TranscriptFacts) -> dict[str, Any]:
    return {"type": "duration", "seconds": facts.duration_seconds}


def _verbose(transcript: Transcript, task: str, granularities: Sequence[str]) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "task": task,
        "language": transcript.facts.language,
        "duration": transcript.facts.duration_seconds,
        "text": transcript.text,
        "usage": _usage(transcript.facts),
    }
    if "segment" in granularities:
        answer["segments"] = [
            {
                "id": number,
                "seek": round(segment.start_seconds * _SEEK_PER_SECOND),
                "start": segment.start_seconds,
                "end": segment.end_seconds,
                "text": segment.text,
                "tokens": segment.token_ids,
                "temperature": segment.temperature,
                "avg_logprob": segment.avg_logprob,
                "compression_ratio": segment.compression_ratio,
                "no_speech_prob": segment.no_speech_prob,
            }
            for number, segment in enumerate(transcript.segments)
        ]
    if "word" in granularities:
        answer["words"] = [
            {"word": word.word.strip(), "start": word.start_seconds, "end": word.end_seconds}
            for segment in transcript.segments
            for word in segment.words
        ]
    return answer


def _srt(segments: Sequence[TranscriptSegment]) -> str:
    return "".join(
        f"{number}\n{_clock(segment.start_seconds, ',')} --> {_clock(segment.end_seconds, ',')}\n{_cue(segment)}\n\n"
        for number, segment in enumerate(segments, 1)
    )


def _vtt(segments: Sequence[TranscriptSegment]) -> str:
    cues = [
        f"{_clock(segment.start_seconds, '.')} --> {_clock(segment.end_seconds, '.')}\n{_cue(segment)}\n\n"
        for segment in segments
    ]
    return "WEBVTT\n\n" + "".join(cues)


def _cue(segment: TranscriptSegment) -> str:
    return segment.text.strip().replace("-->", "->")


def _clock(moment_seconds: float, point: str) -> str:
    milliseconds = round(moment_seconds * 1000)
    seconds, milliseconds = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{milliseconds:03}"
