"""Fields that chat and text completions share: sampling, length, seeds, stops, guides, caching."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from edgellm.api import limits
from edgellm.api.wire.fields import Advisory, TextOrObject, WireModel, invalid, neutral


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _stop_length(value: str) -> str:
    size_bytes = len(value.encode())
    if not 1 <= size_bytes <= limits.STOP_BYTES_MAX:
        raise invalid(f"must be 1 to {limits.STOP_BYTES_MAX} bytes long")
    return value


def _token_biases(value: dict[str, float]) -> dict[str, float]:
    for key, bias in value.items():
        if not (key.isascii() and key.isdigit() and int(key[:11]) <= limits.INT32_MAX):
            raise invalid("must have token ids as its keys")
        if not -limits.LOGIT_BIAS_MAX <= bias <= limits.LOGIT_BIAS_MAX:
            raise invalid(f"must have values between {-limits.LOGIT_BIAS_MAX:g} and {limits.LOGIT_BIAS_MAX:g}")
    return value


# Clients send large constants for "as much as there is": what is too long for any model is the longest.
Count = Annotated[int, Field(ge=1), AfterValidator(lambda count: min(count, limits.INT32_MAX))]
Penalty = Annotated[float, Field(ge=-limits.PENALTY_MAX, le=limits.PENALTY_MAX)]
StopString = Annotated[str, AfterValidator(_stop_length)]
TokenBiases = Annotated[
    dict[str, Annotated[float, Field(allow_inf_nan=False)]],
    Field(max_length=limits.LOGIT_BIAS_ENTRIES_MAX),
    AfterValidator(_token_biases),
]


# Without effect on the text, and kept: so their size is bounded.
Identifier = Annotated[str, Field(max_length=limits.IDENTIFIER_CHARACTERS_MAX)]
Metadata = Annotated[
    dict[
        Annotated[str, Field(max_length=limits.METADATA_KEY_CHARACTERS_MAX)],
        Annotated[str, Field(max_length=limits.METADATA_VALUE_CHARACTERS_MAX)],
    ],
    Field(max_length=limits.METADATA_ENTRIES_MAX),
]


class StreamOptions(WireModel):
    include_usage: bool = False
    include_obfuscation: Annotated[Any, neutral(False)] = None


class GuidedDecodingFields(WireModel):
    """At most one is asked for; null, "", [] and false ask for nothing."""

    json_object: bool = False
    json_schema: TextOrObject | None = None
    structural_tag: TextOrObject | None = None
    regex: str = ""
    ebnf: str = ""
    choice: list[str] = Field(default_factory=list)


class JsonSchemaFormat(WireModel):
    """``strict`` is taken and makes no difference: a schema is always enforced."""

    name: str = Field(default="", max_length=limits.NAME_CHARACTERS_MAX)
    description: Annotated[Any, Advisory()] = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool = True


def _unless_zero(value: object) -> object:
    """0 is what other servers' clients send to ask for nothing."""
    return None if value == 0 and not isinstance(value, bool) else value


PriorityName = Annotated[
    Literal["high", "normal", "low"] | None, BeforeValidator(_unless_zero, Literal["high", "normal", "low", 0] | None)
]


class ResponseFormat(WireModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class SamplingFields(WireModel):
    temperature: float | None = Field(default=None, ge=0, le=limits.TEMPERATURE_MAX)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=limits.INT32_MAX)
    min_p: float | None = Field(default=None, ge=0, le=1)
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: float | None = Field(default=None, gt=0, le=limits.REPETITION_PENALTY_MAX)
    logit_bias: TokenBiases | None = None
    seed: int | None = Field(default=None, ge=0, le=limits.SEED_MAX)
    stop: Annotated[
        list[StopString], Field(max_length=limits.STOP_STRINGS_MAX), BeforeValidator(_one_or_many, str | list[str])
    ] = Field(default_factory=list)
    max_tokens: Count | None = None
    n: int = Field(default=1, ge=1, le=limits.CHOICES_MAX)
    best_of: Annotated[Any, neutral(1)] = None
    echo: Annotated[Any, neutral(False)] = None

    stream: bool = False
    stream_options: StreamOptions | None = None

    response_format: ResponseFormat | None = None
    guided_decoding: GuidedDecodingFields | None = None

    reuse_context: bool = True
    cache_generated_tokens: bool = True
    skip_special_tokens: bool = True
    disable_spec_decode: bool = False
    priority: PriorityName | None = None

    user: Identifier | None = None
    safety_identifier: Identifier | None = None
    prompt_cache_key: Identifier | None = None
    metadata: Metadata | None = None
    prompt_cache_retention: Annotated[Any, neutral("in-memory", "in_memory")] = None
    store: Annotated[Any, neutral(False)] = None
    service_tier: Annotated[Any, neutral("auto", "default")] = None
