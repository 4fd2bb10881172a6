"""Messages of the Anthropic protocol as clients send them: roles, and contents as text or blocks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from edgellm.api import limits
from edgellm.api.wire.fields import UNKNOWN_KIND, Advisory, Brought, WireModel, invalid, neutral

MEDIA_BLOCKS = {"image": "image", "document": "document", "search_result": "search result"}
"""Blocks that bring more than text, with the word for what they bring."""


class TextBlock(WireModel):
    type: Literal["text"]
    text: str
    cache_control: Annotated[Any, Advisory()] = None
    citations: Annotated[Any, neutral([])] = None


class MediaBlock(WireModel):
    """Which model takes which kind is for the model to say; its payload is looked at only then."""

    type: Literal["image", "document", "search_result"]
    source: Annotated[Any, Brought()] = None
    title: Annotated[Any, Advisory()] = None
    context: Annotated[Any, Advisory()] = None
    content: Annotated[Any, Advisory()] = None
    citations: Annotated[Any, Advisory()] = None
    transformations: Annotated[Any, Advisory()] = None
    cache_control: Annotated[Any, Advisory()] = None


class ThinkingBlock(WireModel):
    """What an earlier answer thought. The signature proves nothing here: a client may send any reasoning it likes."""

    type: Literal["thinking"]
    thinking: str
    signature: Annotated[Any, Advisory()] = None
    cache_control: Annotated[Any, Advisory()] = None


class RedactedThinkingBlock(WireModel):
    """Thinking that another server hid: nothing of it can be read, so nothing of it reaches the model."""

    type: Literal["redacted_thinking"]
    data: Annotated[Any, Advisory()] = None


class ToolUseBlock(WireModel):
    type: Literal["tool_use"]
    id: str = Field(min_length=1, max_length=limits.NAME_CHARACTERS_MAX)
    name: str = Field(min_length=1, max_length=limits.NAME_CHARACTERS_MAX)
    input: dict[str, Any]
    caller: Annotated[Any, neutral({"type": "direct"})] = None
    toolset_name: Annotated[Any, neutral()] = None
    cache_control: Annotated[Any, Advisory()] = None


def _block_kind(value: object) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else None
    return _TAG_OF_BLOCK.get(kind) if isinstance(kind, str) else None


_TAG_OF_BLOCK = {
    "text": "(text)",
    "image": "(media)",
    "document": "(media)",
    "search_result": "(media)",
    "thinking": "(thinking)",
    "redacted_thinking": "(redacted)",
    "tool_use": "(use)",
    "tool_result": "(result)",
}


def _object_or_text(value: object) -> object:
    """A bare string in an array of blocks is a text."""
    if isinstance(value, str):
        return {"type": "text", "text": value}
    if not isinstance(value, dict):
        raise invalid("must be an object or a string")
    return value


def _one_of(*kinds: str) -> Discriminator:
    return Discriminator(
        _block_kind, custom_error_type=UNKNOWN_KIND, custom_error_message=f"must be one of {', '.join(kinds)}"
    )


def _text_or_array(value: object) -> str | None:
    if isinstance(value, str):
        return "(text)"
    return "(parts)" if isinstance(value, list) else None


_CONTENT_SHAPE = Discriminator(
    _text_or_array,
    custom_error_type="invalid_value",
    custom_error_message="must be a string or an array of blocks",
)
ResultBlock = Annotated[
    Annotated[TextBlock, Tag("(text)")] | Annotated[MediaBlock, Tag("(media)")],
    _one_of("text", *MEDIA_BLOCKS),
    BeforeValidator(_object_or_text),
]


class ToolResultBlock(WireModel):
    type: Literal["tool_result"]
    tool_use_id: str = Field(min_length=1, max_length=limits.NAME_CHARACTERS_MAX)
    content: Annotated[
        Annotated[str, Tag("(text)")]
        | Annotated[list[ResultBlock], Field(max_length=limits.PARTS_MAX), Tag("(parts)")],
        _CONTENT_SHAPE,
    ] = ""
    is_error: bool = False
    toolset_name: Annotated[Any, neutral()] = None
    cache_control: Annotated[Any, Advisory()] = None


Block = Annotated[
    Annotated[TextBlock, Tag("(text)")]
    | Annotated[MediaBlock, Tag("(media)")]
    | Annotated[ThinkingBlock, Tag("(thinking)")]
    | Annotated[RedactedThinkingBlock, Tag("(redacted)")]
    | Annotated[ToolUseBlock, Tag("(use)")]
    | Annotated[ToolResultBlock, Tag("(result)")],
    _one_of(*_TAG_OF_BLOCK),
    BeforeValidator(_object_or_text),
]
SystemBlock = Annotated[TextBlock, BeforeValidator(_object_or_text)]
System = Annotated[
    Annotated[str, Tag("(text)")] | Annotated[list[SystemBlock], Field(max_length=limits.PARTS_MAX), Tag("(parts)")],
    _CONTENT_SHAPE,
]


class MessageParam(WireModel):
    role: Literal["user", "assistant", "system"]
    content: Annotated[
        Annotated[str, Tag("(text)")]
        | Annotated[list[Block], Field(min_length=1, max_length=limits.BLOCKS_MAX), Tag("(parts)")],
        _CONTENT_SHAPE,
    ]
