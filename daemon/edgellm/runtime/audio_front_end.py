"""AudioFrontEnd: what is checked of a request for a transcript before it takes a place in the runtime."""

from __future__ import annotations

from edgellm.errors import RequestError, RuntimeUnavailableError, UnsupportedParameterError
from edgellm.runtime.capabilities import Transcription
from edgellm.runtime.generation import AudioPrompt, GenerationRequest


class AudioFrontEnd:
    """Nothing is tokenised here. Thread-safe."""

    def __init__(self, transcription: Transcription) -> None:
        self._transcription = transcription

    def encode(self, request: GenerationRequest) -> GenerationRequest:
        check_audio_prompt(audio_prompt_of(request), self._transcription)
        return request

    def count(self, request: GenerationRequest) -> int:
        raise UnsupportedParameterError("model: this model transcribes speech and counts no tokens.", param="model")


def audio_prompt_of(request: GenerationRequest) -> AudioPrompt:
    if not isinstance(request.prompt, AudioPrompt):
        raise UnsupportedParameterError("model: this model transcribes speech and takes no text.", param="model")
    return request.prompt


def check_audio_prompt(prompt: AudioPrompt, transcription: Transcription) -> None:
    """Raise RequestError for what the model cannot hear or say."""
    if prompt.translate and not transcription.translates:
        raise UnsupportedParameterError(
            "model: this model understands English alone: it translates nothing."
            if transcription.languages == ("en",)
            else "model: this model writes down what is said, and translates nothing.",
            param="model",
        )
    if prompt.with_times and not transcription.has_times:
        raise UnsupportedParameterError(
            "response_format: this model does not know when something was said: take json or text.",
            param="response_format",
        )
    if prompt.language is not None and prompt.language not in transcription.languages:
        known = "en alone" if transcription.languages == ("en",) else f"one of {', '.join(transcription.languages)}"
        raise RequestError(f"language must be {known} for this model.", param="language")


def no_audio_extra(error: ImportError) -> RuntimeUnavailableError:
    return RuntimeUnavailableError(
        f"speech recognition needs the audio extra ({error.name} is not installed): "
        "pip install 'edgellm[audio]', or make audio in a checkout"
    )
