"""Shapes of Anthropic answers, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict


class ThinkingContent(TypedDict):
    type: Literal["thinking"]
    thinking: str
    signature: str


class TextContent(TypedDict):
    type: Literal["text"]
    text: str
    citations: None


class ToolUseContent(TypedDict):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class OutputTokensDetails(TypedDict):
    thinking_tokens: int


class AnthropicUsage(TypedDict):
    """``input_tokens`` are those of the prompt that were not taken from the cache."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: OutputTokensDetails


class AnthropicMessage(TypedDict):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ThinkingContent | TextContent | ToolUseContent]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"] | None
    stop_sequence: str | None
    usage: AnthropicUsage


class TokenCount(TypedDict):
    input_tokens: int


class ErrorCause(TypedDict):
    error_code: str | None
    param: str | None


class AnthropicErrorDetails(TypedDict):
    type: str
    message: str
    details: ErrorCause


class AnthropicErrorAnswer(TypedDict):
    type: Literal["error"]
    error: AnthropicErrorDetails
    request_id: str
