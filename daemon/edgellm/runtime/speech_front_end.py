"""SpeechFrontEnd: what is checked of a request for speech before it takes a place in the runtime."""

from __future__ import annotations

from typing import Final

from edgellm.errors import RequestError, UnsupportedModalityError, UnsupportedParameterError
from edgellm.media.speech_formats import SPEECH_FORMATS
from edgellm.runtime.capabilities import Capabilities, Speech
from edgellm.runtime.generation import GenerationRequest, SpeechPrompt, SpokenOutput

SPEECH_INPUT_CHARACTERS_MAX: Final = 4096
SPEECH_SPEED_MIN: Final = 0.25
SPEECH_SPEED_MAX: Final = 4.0


class SpeechFrontEnd:
    """Nothing is tokenised here. Thread-safe."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech

    def encode(self, request: GenerationRequest) -> GenerationRequest:
        check_speech_prompt(speech_prompt_of(request), self._speech)
        return request

    def count(self, request: GenerationRequest) -> int:
        raise UnsupportedParameterError("model: this model speaks and counts no tokens.", param="model")


def speech_prompt_of(request: GenerationRequest) -> SpeechPrompt:
    if not isinstance(request.prompt, SpeechPrompt):
        raise UnsupportedParameterError("model: this model speaks text and answers none.", param="model")
    return request.prompt


def check_speech_prompt(prompt: SpeechPrompt, speech: Speech) -> None:
    """Raise RequestError for what no voice of the model says, or not in that way."""
    _check_voice(prompt.voice, speech, "voice")
    if not prompt.text.strip():
        raise RequestError("input must hold something to say.", param="input")
    if len(prompt.text) > SPEECH_INPUT_CHARACTERS_MAX:
        raise RequestError(f"input must have at most {SPEECH_INPUT_CHARACTERS_MAX} characters.", param="input")
    if not SPEECH_SPEED_MIN <= prompt.speed <= SPEECH_SPEED_MAX:  # a NaN is not either
        raise RequestError(f"speed must be {SPEECH_SPEED_MIN} to {SPEECH_SPEED_MAX}.", param="speed")
    if prompt.format_name not in SPEECH_FORMATS:
        raise RequestError(f"response_format must be one of {', '.join(SPEECH_FORMATS)}.", param="response_format")


def check_talker_speed(speed: float) -> None:
    """Raise UnsupportedParameterError for a speed that no talker has."""
    if speed != 1.0:
        raise UnsupportedParameterError("speed: this model speaks at one speed: leave it at 1.", param="speed")


def require_speech(capabilities: Capabilities, param: str) -> None:
    """Raise RequestError, about ``param``, for a model that does not speak, or not in this launch."""
    if not capabilities.speech.voices:
        reason = capabilities.speech_refusal or "this model makes text and does not speak"
        kind = UnsupportedParameterError if param == "model" else UnsupportedModalityError
        raise kind(f"{param}: {reason}.", param=param)


def check_spoken_output(spoken: SpokenOutput, speech: Speech) -> None:
    """Raise RequestError for an answer that the model cannot say, or not in that way."""
    _check_voice(spoken.voice, speech, "audio.voice")
    if spoken.format_name not in SPEECH_FORMATS:
        raise RequestError(f"audio.format must be one of {', '.join(SPEECH_FORMATS)}.", param="audio.format")
    spoken.params.check()
    check_talker_speed(spoken.params.speed)


def _check_voice(voice: str, speech: Speech, param: str) -> None:
    names = [each.name for each in speech.voices]
    if voice not in names:
        known = names[0] if len(names) == 1 else f"one of {', '.join(names)}"
        raise RequestError(f"{param} must be {known} for this model.", param=param)
