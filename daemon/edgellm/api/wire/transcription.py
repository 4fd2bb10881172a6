"""The fields of POST /v1/audio/transcriptions and /v1/audio/translations, which come as texts of a form."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from edgellm.api import limits
from edgellm.api.wire.fields import WireModel, invalid, neutral, unsupported

Granularity = Literal["word", "segment"]


def _number(value: object) -> object:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        raise invalid("must be a number") from None


def _flag(value: object) -> object:
    return {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else value


# The bounds come first: behind the validator they would not be bounds in the document.
Temperature = Annotated[float, Field(ge=0, le=limits.TEMPERATURE_MAX, allow_inf_nan=False), BeforeValidator(_number)]


class TranslationRequest(WireModel):
    model: str = Field(max_length=limits.NAME_CHARACTERS_MAX)
    prompt: Annotated[str, Field(max_length=limits.AUDIO_PROMPT_CHARACTERS_MAX)] = ""
    response_format: Literal["json", "text", "srt", "verbose_json", "vtt"] = "json"
    temperature: Temperature = 0.0


class TranscriptionRequest(TranslationRequest):
    language: Annotated[str, Field(max_length=limits.LANGUAGE_CHARACTERS_MAX)] | None = None
    timestamp_granularities: Annotated[list[Granularity], BeforeValidator(_one_or_more)] = Field(default=["segment"])
    stream: Annotated[bool, BeforeValidator(_flag)] = False
    include: Annotated[Any, neutral([])] = None
    chunking_strategy: Annotated[Any, neutral("auto")] = None

    @field_validator("language")
    @classmethod
    def _lower_case(cls, language: str | None) -> str | None:
        return language.lower() if language else None

    @model_validator(mode="after")
    def _shapes_agree(self) -> TranscriptionRequest:
        if "word" in self.timestamp_granularities and self.response_format != "verbose_json":
            raise unsupported('needs response_format "verbose_json" for words', "timestamp_granularities")
        if self.stream and self.response_format not in ("json", "text"):
            raise unsupported('cannot be streamed; leave it out, or take "json"', "response_format")
        return self
