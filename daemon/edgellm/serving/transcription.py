"""TranscribingModel: a Transcriber as a lane's model."""

from __future__ import annotations

from collections.abc import Iterator

from edgellm.media.audio import check_audio
from edgellm.runtime.audio_front_end import AudioFrontEnd, audio_prompt_of, check_audio_prompt
from edgellm.runtime.cancellation import Cancellation
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import GenerationRequest
from edgellm.runtime.outputs import StreamDelta, TranscriptFacts, TranscriptSegment
from edgellm.runtime.request_encoder import RequestEncoder
from edgellm.runtime.transcriber import Transcriber


class TranscribingModel:
    """Owns the transcriber."""

    failure = "The audio could not be transcribed."

    def __init__(self, transcriber: Transcriber) -> None:
        self.transcriber = transcriber
        self.encoder = RequestEncoder(self.capabilities, AudioFrontEnd(self.capabilities.transcription))

    @property
    def capabilities(self) -> Capabilities:
        return self.transcriber.capabilities

    def work(self, request: GenerationRequest, is_cancelled: Cancellation) -> _Transcript:
        return _Transcript(self.transcriber, request, is_cancelled)

    def close(self) -> None:
        self.transcriber.close()


class _Transcript:
    """Checked by decoding all of the file: nothing else tells whether it can be."""

    def __init__(self, transcriber: Transcriber, request: GenerationRequest, is_cancelled: Cancellation) -> None:
        self._transcriber = transcriber
        self._prompt = audio_prompt_of(request)
        self._temperature = request.params.temperature
        self._is_cancelled = is_cancelled

    def check(self) -> None:
        check_audio_prompt(self._prompt, self._transcriber.capabilities.transcription)
        check_audio(self._prompt.audio, self._is_cancelled)

    def deltas(self) -> Iterator[StreamDelta]:
        for said in self._transcriber.transcribe(self._prompt, self._temperature, self._is_cancelled):
            if isinstance(said, TranscriptFacts):
                yield StreamDelta(finished=True, finish_reason="stop", transcript=said)
            elif isinstance(said, TranscriptSegment):
                yield StreamDelta(said.text, said.token_ids, segments=[said])
            else:
                yield StreamDelta(said.text, said.token_ids, said.prompt_tokens)

    def close(self) -> None:
        self._prompt.audio.close()
