"""The bodies of POST /v1/messages and POST /v1/messages/count_tokens."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from edgellm.api import limits
from edgellm.api.wire.anthropic_blocks import MessageParam, System
from edgellm.api.wire.fields import INVALID_VALUE, Advisory, WireModel, neutral, unsupported
from edgellm.api.wire.sampling import Count, Identifier, StopString

NO_HOSTED_TOOLS = "is not supported: this server runs no tools of its own; give a name and an input_schema"


class CustomTool(WireModel):
    """``strict`` is taken and makes no difference: arguments of an enforced call always fit their schema."""

    type: Literal["custom"] = "custom"
    name: str = Field(min_length=1, max_length=limits.NAME_CHARACTERS_MAX)
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool = False
    cache_control: Annotated[Any, Advisory()] = None
    eager_input_streaming: Annotated[Any, Advisory()] = None
    defer_loading: Annotated[Any, neutral(False)] = None
    allowed_callers: Annotated[Any, neutral([], ["direct"])] = None
    input_examples: Annotated[Any, neutral([])] = None


def _offered_by_the_client(value: object) -> object:
    if isinstance(value, dict) and value.get("type") not in (None, "custom"):
        raise unsupported(NO_HOSTED_TOOLS, "type")
    return value


Tool = Annotated[CustomTool, BeforeValidator(_offered_by_the_client)]


class ToolChoice(WireModel):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = Field(default=None, max_length=limits.NAME_CHARACTERS_MAX)
    disable_parallel_tool_use: bool = False


class Thinking(WireModel):
    """``budget_tokens`` is taken and not enforced: the model ends its thinking itself, within max_tokens."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Count | None = None
    display: Literal["summarized", "omitted"] | None = None


class JsonSchemaOutput(WireModel):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(WireModel):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonSchemaOutput | None = None


class KeepTurns(WireModel):
    type: Literal["thinking_turns"]
    value: Count


def _keep_shape(value: object) -> str | None:
    if isinstance(value, str):
        return "(all)"
    return "(turns)" if isinstance(value, dict) else None


class ClearThinking(WireModel):
    """Forget what earlier answers thought, but for the last ``keep`` of them."""

    type: Literal["clear_thinking_20251015"]
    keep: Annotated[
        Annotated[Literal["all"], Tag("(all)")] | Annotated[KeepTurns, Tag("(turns)")],
        Discriminator(_keep_shape, custom_error_type=INVALID_VALUE, custom_error_message='must be "all" or an object'),
    ] = Field(default_factory=lambda: KeepTurns(type="thinking_turns", value=1))


def _known_edit(value: object) -> object:
    if isinstance(value, dict) and value.get("type") != "clear_thinking_20251015":
        raise unsupported("is not an edit that this server makes", "type")
    return value


class ContextManagement(WireModel):
    edits: list[Annotated[ClearThinking, BeforeValidator(_known_edit)]] = Field(default_factory=list, max_length=1)


class PromptFields(WireModel):
    """What both routes take: all that becomes the prompt."""

    model: str = Field(max_length=limits.NAME_CHARACTERS_MAX)
    messages: list[MessageParam] = Field(min_length=1, max_length=limits.MESSAGES_MAX)
    system: System | None = None
    tools: list[Tool] = Field(default_factory=list, max_length=limits.TOOLS_MAX)
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    context_management: ContextManagement | None = None

    cache_control: Annotated[Any, Advisory()] = None
    user_profile_id: Annotated[Any, Advisory()] = None
    workspace_id: Annotated[Any, Advisory()] = None
    speed: Annotated[Any, neutral("standard")] = None
    mcp_servers: Annotated[Any, neutral([])] = None
    thread: Annotated[Any, neutral(hint="send the whole conversation")] = None
    compaction: Annotated[Any, neutral()] = None
    fallbacks: Annotated[Any, neutral([])] = None


class CountTokensRequest(PromptFields):
    pass


class Metadata(WireModel):
    user_id: Identifier | None = None


class MessagesRequest(PromptFields):
    max_tokens: Count
    stream: bool = False
    stop_sequences: list[StopString] = Field(default_factory=list, max_length=limits.STOP_STRINGS_MAX)
    temperature: float | None = Field(default=None, ge=0, le=limits.TEMPERATURE_MAX)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=limits.INT32_MAX)

    metadata: Metadata | None = None
    diagnostics: Annotated[Any, Advisory()] = None
    inference_geo: Annotated[Any, Advisory()] = None
    service_tier: Annotated[Any, neutral("auto", "standard_only")] = None
    container: Annotated[Any, neutral()] = None
