"""The body of POST /v1/responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from edgellm.api import limits
from edgellm.api.wire.chat import ReasoningEffort
from edgellm.api.wire.fields import INVALID_VALUE, Advisory, WireModel, neutral, unsupported
from edgellm.api.wire.response_items import InputItem
from edgellm.api.wire.sampling import Count, Identifier, Metadata, Penalty, StreamOptions
from edgellm.api.wire.tools import a_function

ENCRYPTED_REASONING = "reasoning.encrypted_content"
TEXT_LOGPROBS = "message.output_text.logprobs"


class TextFormat(WireModel):
    """``strict`` is taken and makes no difference: a schema is always enforced."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = Field(default=None, max_length=limits.NAME_CHARACTERS_MAX)
    description: Annotated[Any, Advisory()] = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextFields(WireModel):
    format: TextFormat | None = None
    verbosity: Annotated[Any, neutral("medium")] = None


class Reasoning(WireModel):
    """Summaries are not written: what the model thinks is in the answer as it is."""

    effort: ReasoningEffort | None = None
    summary: Annotated[Any, neutral("auto")] = None
    generate_summary: Annotated[Any, neutral("auto")] = None
    context: Annotated[Any, neutral("auto")] = None
    mode: Annotated[Any, neutral("standard")] = None


class FunctionTool(WireModel):
    type: Literal["function"]
    name: str = Field(min_length=1, max_length=limits.NAME_CHARACTERS_MAX)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: Annotated[Any, neutral(False)] = None
    allowed_callers: Annotated[Any, neutral([], ["direct"])] = None
    output_schema: Annotated[Any, Advisory()] = None


class NamedTool(WireModel):
    type: Literal["function"]
    name: str = Field(min_length=1, max_length=limits.NAME_CHARACTERS_MAX)


class AllowedTools(WireModel):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[Annotated[NamedTool, BeforeValidator(a_function)]] = Field(min_length=1, max_length=limits.TOOLS_MAX)


def _choice_shape(value: object) -> str | None:
    if isinstance(value, str):
        return "(mode)"
    if not isinstance(value, dict):
        return None
    return "(allowed)" if value.get("type") == "allowed_tools" else "(named)"


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("(mode)")]
    | Annotated[AllowedTools, Tag("(allowed)")]
    | Annotated[NamedTool, BeforeValidator(a_function), Tag("(named)")],
    Discriminator(
        _choice_shape,
        custom_error_type=INVALID_VALUE,
        custom_error_message="must be none, auto, required or an object that names tools",
    ),
]


def _input_shape(value: object) -> str | None:
    if isinstance(value, str):
        return "(text)"
    return "(items)" if isinstance(value, list) else None


Input = Annotated[
    Annotated[str, Tag("(text)")]
    | Annotated[list[InputItem], Field(min_length=1, max_length=limits.MESSAGES_MAX), Tag("(items)")],
    Discriminator(
        _input_shape,
        custom_error_type=INVALID_VALUE,
        custom_error_message="must be a string or an array of items",
    ),
]


def _included(value: object) -> object:
    if isinstance(value, str) and value not in (ENCRYPTED_REASONING, TEXT_LOGPROBS):
        raise unsupported("asks for something that answers of this server do not have")
    return value


class ResponsesRequest(WireModel):
    model: str | None = Field(default=None, max_length=limits.NAME_CHARACTERS_MAX)
    input: Input
    instructions: str | None = None
    previous_response_id: str | None = Field(default=None, min_length=1, max_length=limits.NAME_CHARACTERS_MAX)
    store: bool | None = None
    include: list[Annotated[str, BeforeValidator(_included)]] = Field(default_factory=list, max_length=limits.PARTS_MAX)
    stream: bool = False
    stream_options: StreamOptions | None = None

    tools: list[Annotated[FunctionTool, BeforeValidator(a_function)]] = Field(
        default_factory=list, max_length=limits.TOOLS_MAX
    )
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    text: TextFields | None = None
    reasoning: Reasoning | None = None

    max_output_tokens: Count | None = None
    temperature: float | None = Field(default=None, ge=0, le=limits.TEMPERATURE_MAX)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_logprobs: int | None = Field(default=None, ge=0, le=limits.TOP_LOGPROBS_MAX)
    top_k: int | None = Field(default=None, ge=-1, le=limits.INT32_MAX)
    min_p: float | None = Field(default=None, ge=0, le=1)
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: float | None = Field(default=None, gt=0, le=limits.REPETITION_PENALTY_MAX)
    seed: int | None = Field(default=None, ge=0, le=limits.SEED_MAX)

    metadata: Metadata | None = None
    user: Identifier | None = None
    safety_identifier: Identifier | None = None
    prompt_cache_key: Identifier | None = None
    prompt_cache_options: Annotated[Any, Advisory()] = None
    client_metadata: Annotated[Any, Advisory()] = None
    max_tool_calls: Annotated[Any, Advisory()] = None  # of hosted tools, and there are none
    prompt_cache_retention: Annotated[Any, neutral("in-memory", "in_memory")] = None
    service_tier: Annotated[Any, neutral("auto", "default")] = None
    truncation: Annotated[Any, neutral("disabled", hint="a prompt that is too long is refused")] = None
    background: Annotated[Any, neutral(False)] = None
    background_options: Annotated[Any, neutral()] = None
    conversation: Annotated[Any, neutral(hint="use previous_response_id")] = None
    context_management: Annotated[Any, neutral([])] = None
    prompt: Annotated[Any, neutral(hint="use instructions and input")] = None
    moderation: Annotated[Any, neutral()] = None
