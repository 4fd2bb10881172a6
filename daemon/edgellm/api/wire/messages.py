"""Chat messages as clients send them: roles, contents as text or parts, tool calls of earlier turns."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from edgellm.api import limits
from edgellm.api.wire.fields import UNKNOWN_KIND, Advisory, Brought, TextOrObject, WireModel, invalid

_PART_ALIASES = {
    "input_text": "text",
    "output_text": "text",
    "image": "image_url",
    "video": "video_url",
    "audio": "input_audio",
    "audio_url": "input_audio",
}
_ROLE_OF_LEGACY_FUNCTION = "function"


class TextPart(WireModel):
    type: Literal["text"]
    text: str
    annotations: Annotated[Any, Advisory()] = None
    cache_control: Annotated[Any, Advisory()] = None


class RefusalPart(WireModel):
    type: Literal["refusal"]
    refusal: str


class MediaPart(WireModel):
    """Which model takes which kind is for the model to say; its payload is looked at only then."""

    type: Literal["image_url", "input_audio", "video_url"]
    image_url: Annotated[Any, Brought()] = None
    input_audio: Annotated[Any, Brought()] = None
    video_url: Annotated[Any, Brought()] = None
    image: Annotated[Any, Brought()] = None
    audio: Annotated[Any, Brought()] = None
    audio_url: Annotated[Any, Brought()] = None
    video: Annotated[Any, Brought()] = None
    detail: Annotated[Any, Advisory()] = None
    do_resize: Annotated[Any, Brought()] = None
    fps: Annotated[Any, Brought()] = None
    cache_control: Annotated[Any, Advisory()] = None


def _named_part(value: object) -> object:
    """Bare strings, objects without a type and other names for a kind count as their obvious kind."""
    if isinstance(value, str):
        return {"type": "text", "text": value}
    if not isinstance(value, dict):
        raise invalid("must be an object or a string")
    kind = value.get("type")
    if kind is None and isinstance(value.get("text"), str):
        return {**value, "type": "text"}
    if isinstance(kind, str) and kind in _PART_ALIASES:
        return {**value, "type": _PART_ALIASES[kind]}
    return value


def _part_kind(value: object) -> str | None:
    return _TAG_OF_PART.get(value["type"]) if isinstance(value, dict) and isinstance(value.get("type"), str) else None


_TAG_OF_PART = {
    "text": "(text)",
    "refusal": "(refusal)",
    "image_url": "(media)",
    "input_audio": "(media)",
    "video_url": "(media)",
}

Part = Annotated[
    Annotated[TextPart, Tag("(text)")]
    | Annotated[RefusalPart, Tag("(refusal)")]
    | Annotated[MediaPart, Tag("(media)")],
    Discriminator(
        _part_kind,
        custom_error_type=UNKNOWN_KIND,
        custom_error_message=f"must be one of {', '.join(_TAG_OF_PART)}",
    ),
    BeforeValidator(_named_part),
]


def _content_shape(value: object) -> str | None:
    if value is None:
        return "(null)"
    if isinstance(value, str):
        return "(text)"
    return "(parts)" if isinstance(value, list) else None


Content = Annotated[
    Annotated[None, Tag("(null)")]
    | Annotated[str, Tag("(text)")]
    | Annotated[list[Part], Field(min_length=1, max_length=limits.PARTS_MAX), Tag("(parts)")],
    Discriminator(
        _content_shape,
        custom_error_type="invalid_value",
        custom_error_message="must be a string or an array of parts",
    ),
]


class FunctionCall(WireModel):
    name: str = Field(min_length=1, max_length=limits.NAME_CHARACTERS_MAX)
    arguments: TextOrObject = ""


class ToolCall(WireModel):
    id: str = Field(min_length=1, max_length=limits.NAME_CHARACTERS_MAX)
    type: Literal["function"] = "function"
    function: FunctionCall
    index: Annotated[Any, Advisory()] = None  # left over by clients that join streamed calls


def _known_role(value: object) -> object:
    if value == _ROLE_OF_LEGACY_FUNCTION:
        raise invalid('must be "tool" for the result of a call, with its tool_call_id')
    return value


class EarlierSound(WireModel):
    """Of an answer that was said. What it said is its transcript: no server keeps sound for its id."""

    id: Annotated[Any, Advisory()] = None
    data: Annotated[Any, Advisory()] = None
    expires_at: Annotated[Any, Advisory()] = None
    transcript: str

    @model_validator(mode="before")
    @classmethod
    def _brings_its_words(cls, value: Any) -> Any:
        if isinstance(value, dict) and not isinstance(value.get("transcript"), str):
            raise invalid("must bring its transcript: no sound is kept here for its id")
        return value


class Message(WireModel):
    """``content`` knows three cases: absent, null, and given; ``model_fields_set`` tells the first two apart."""

    null_is_a_value: ClassVar[frozenset[str]] = frozenset({"content"})

    role: Annotated[Literal["system", "developer", "user", "assistant", "tool"], BeforeValidator(_known_role)]
    content: Content = None
    name: str | None = Field(default=None, max_length=limits.NAME_CHARACTERS_MAX)
    tool_calls: list[ToolCall] = Field(default_factory=list, max_length=limits.TOOL_CALLS_MAX)
    tool_call_id: str | None = Field(default=None, max_length=limits.NAME_CHARACTERS_MAX)
    function_call: FunctionCall | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    annotations: Annotated[Any, Advisory()] = None
    cache_control: Annotated[Any, Advisory()] = None
    audio: EarlierSound | None = None
