"""SpeakingModel: a TTS as a lane's model."""

from __future__ import annotations

from collections.abc import Iterator

from edgellm.runtime.cancellation import Cancellation
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import GenerationRequest
from edgellm.runtime.outputs import StreamDelta
from edgellm.runtime.request_encoder import RequestEncoder
from edgellm.runtime.speaker import Utterance
from edgellm.runtime.speech_front_end import SpeechFrontEnd, speech_prompt_of
from edgellm.runtime.tts import TTS


class SpeakingModel:
    """Owns the TTS."""

    failure = "The text could not be spoken."

    def __init__(self, tts: TTS) -> None:
        self.tts = tts
        self.encoder = RequestEncoder(self.capabilities, SpeechFrontEnd(self.capabilities.speech))

    @property
    def capabilities(self) -> Capabilities:
        return self.tts.capabilities

    def work(self, request: GenerationRequest, is_cancelled: Cancellation) -> _Speech:
        return _Speech(self.tts, request, is_cancelled)

    def close(self) -> None:
        self.tts.close()


class _Speech:
    """Checked by finding out what is to be said, which takes next to no time."""

    def __init__(self, tts: TTS, request: GenerationRequest, is_cancelled: Cancellation) -> None:
        self._tts = tts
        self._prompt = speech_prompt_of(request)
        self._is_cancelled = is_cancelled
        self._spoken: Utterance | None = None

    def check(self) -> None:
        self._spoken = self._tts.prepare(self._prompt)

    def deltas(self) -> Iterator[StreamDelta]:
        spoken = self._spoken or self._tts.prepare(self._prompt)
        yield from self._tts.speak(spoken, self._prompt, self._is_cancelled)

    def close(self) -> None:
        """Nothing is held."""
