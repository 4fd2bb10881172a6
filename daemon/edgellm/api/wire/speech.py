"""The fields of POST /v1/audio/speech."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from edgellm.api import limits
from edgellm.api.wire.fields import WireModel, neutral
from edgellm.media.speech_formats import SpeechFormatName


def name_of_voice(voice: object) -> object:
    """OpenAI's clients name a voice, or give an object with its id."""
    return voice["id"] if isinstance(voice, dict) and voice.keys() == {"id"} else voice


class SpeechRequest(WireModel):
    model: str = Field(max_length=limits.NAME_CHARACTERS_MAX)
    input: str = Field(max_length=limits.SPEECH_INPUT_CHARACTERS_MAX)
    voice: Annotated[str, Field(max_length=limits.NAME_CHARACTERS_MAX), BeforeValidator(name_of_voice)] | None = None
    response_format: SpeechFormatName = "mp3"
    speed: float = Field(default=1.0, ge=limits.SPEECH_SPEED_MIN, le=limits.SPEECH_SPEED_MAX, allow_inf_nan=False)
    stream_format: Literal["audio", "sse"] = "audio"
    instructions: Annotated[Any, neutral("", hint="no voice here takes them")] = None
