"""SpokenAnswer: an answer that is said, as a lane hands it on: encoded, and ended by the last of its sound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from edgellm.media.speech_formats import SpeechFormatName
from edgellm.runtime.contract import GenerationResponse
from edgellm.runtime.generation import GenerationRequest, SpeechPrompt
from edgellm.runtime.outputs import StreamDelta
from edgellm.runtime.running import RunningGeneration


def _never() -> bool:
    return False


def as_asked(running: RunningGeneration, request: GenerationRequest) -> RunningGeneration:
    """The generation, wrapped where the request asked for sound."""
    if isinstance(request.prompt, SpeechPrompt):
        return SpokenAnswer(running, request.prompt.format_name, has_text=False)
    return running if request.spoken is None else SpokenAnswer(running, request.spoken.format_name, has_text=True)


class SpokenAnswer:
    """The runtime's finished delta ends the text; here the finished one ends both."""

    def __init__(self, running: RunningGeneration, format_name: SpeechFormatName, *, has_text: bool) -> None:
        from edgellm.media.speech_encoder import speech_encoder  # numpy, which a front end of workers has no use for

        self._running = running
        self._encoder = speech_encoder(format_name)
        self._last = None if has_text else StreamDelta(finished=True, finish_reason="stop")
        self._is_over = False

    @property
    def cancelled(self) -> bool:
        return self._running.cancelled

    def next_delta(self, given_up: Callable[[], bool] = _never) -> StreamDelta | None:
        while not self._is_over and (delta := self._running.next_delta(given_up)) is not None:
            if delta.audio_bytes:
                return replace(delta, audio_bytes=self._encoder.encode(delta.audio_bytes))
            if not delta.finished:
                return delta
            self._last = delta
        if self._is_over or self._last is None:
            return None
        self._is_over = True
        return replace(self._last, audio_bytes=self._encoder.finish() or None)

    def cancel(self) -> None:
        self._running.cancel()

    def result(self) -> GenerationResponse:
        return self._running.result()
