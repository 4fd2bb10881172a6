"""EventStream: the deltas of one streamed answer on their way to its connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from edgellm.api.body_writer import BodyWriter
from edgellm.api.stream_format import AnswerStreamFormat, SoundStreamFormat, StreamFormat
from edgellm.api.usage import Usage
from edgellm.runtime.outputs import StreamDelta
from edgellm.serving.answer_events import ChoiceEvents
from edgellm.serving.generation import ChoiceDelta


class EventStream:
    """While the client keeps up, a delta is formatted and written inside the call that read it from the runtime.

    ``parsers`` has one a choice, or is None where the text is left as it is. A parser holds a call back until it is
    complete, which may take minutes: meanwhile a heartbeat is written from time to time. Where what follows can only
    be text, its events are made of it without a delta.
    """

    def __init__(
        self,
        stream: StreamFormat,
        parsers: Sequence[ChoiceEvents] | None,
        usage: Usage,
        writer: BodyWriter | None,
        heartbeat_seconds: float,
    ) -> None:
        self.begun = False  # a delta has come
        self._stream = stream
        self._answers: tuple[AnswerStreamFormat, Sequence[ChoiceEvents]] | None = None
        if parsers is not None:
            if not isinstance(stream, AnswerStreamFormat):
                raise TypeError(f"{type(stream).__name__} has no events")
            self._answers = stream, parsers
        self._usage = usage
        self._writer = writer
        self._heartbeat_seconds = heartbeat_seconds
        self._written_seconds = time.monotonic()

    # AtOnce

    def take(self, index: int, delta: StreamDelta) -> bool:
        """False, with nothing done, where the server cannot write in between or the client reads too slowly."""
        writer = self._writer
        if writer is None or not writer.can_write():
            return False
        text = self._text_of(index, delta)
        if text:
            writer.write(text.encode())
        return True

    def text_writer(self, index: int) -> Callable[[str], bool] | None:
        if self._writer is None or (self._answers is not None and not self._answers[1][index].leaves_text_alone):
            return None
        frame = self._stream.text_frame(index)
        return None if frame is None else self._writer.text_writer(frame)

    def bytes_of(self, deltas: Sequence[ChoiceDelta]) -> bytes:
        return "".join([self._text_of(item.index, item.delta) for item in deltas]).encode()

    def _text_of(self, index: int, delta: StreamDelta) -> str:
        self.begun = True
        if delta.audio_bytes and isinstance(self._stream, SoundStreamFormat):
            return self._with_sound(self._stream, index, delta, delta.audio_bytes)
        self._usage.take(index, delta)
        if self._answers is None:
            return self._stream.delta(index, delta)
        stream, parsers = self._answers
        text = stream.events(index, parsers[index].take(delta), delta.logprobs)
        now = time.monotonic()
        if not text and now - self._written_seconds > self._heartbeat_seconds:
            text = self._stream.heartbeat.decode()
        if text:
            self._written_seconds = now
        return text

    def _with_sound(self, stream: SoundStreamFormat, index: int, delta: StreamDelta, sound: bytes) -> str:
        """The words that came with it first, and last what ends the answer."""
        words = replace(delta, audio_bytes=None, finished=False, finish_reason=None, matched_stop=None)
        text = self._text_of(index, words) + stream.sound(index, sound)
        if delta.finished:
            ending = StreamDelta(finished=True, finish_reason=delta.finish_reason, matched_stop=delta.matched_stop)
            text += self._text_of(index, ending)
        return text
