"""Input items of the Responses protocol: messages, calls, their results and reasoning of earlier answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from edgellm.api import limits
from edgellm.api.wire.fields import UNKNOWN_KIND, Advisory, Brought, WireModel, invalid, neutral, unsupported

MEDIA_PARTS = {"input_image": "image", "input_file": "file", "input_audio": "audio"}
"""Parts that bring more than text, with the word for what they bring."""

ItemStatus = Annotated[Any, Advisory()]


class InputText(WireModel):
    """What was said, by whomever: ``output_text`` is the name of the same in an answer."""

    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: Annotated[Any, Advisory()] = None
    logprobs: Annotated[Any, Advisory()] = None
    parsed: Annotated[Any, Advisory()] = None  # left over by clients that read structured answers
    prompt_cache_breakpoint: Annotated[Any, Advisory()] = None


class Refusal(WireModel):
    type: Literal["refusal"]
    refusal: str


class MediaPart(WireModel):
    """Which model takes which kind is for the model to say; its payload is looked at only then."""

    type: Literal["input_image", "input_file", "input_audio"]
    detail: Annotated[Any, Advisory()] = None
    image_url: Annotated[Any, Brought()] = None
    file_id: Annotated[Any, Brought()] = None
    file_data: Annotated[Any, Brought()] = None
    file_url: Annotated[Any, Brought()] = None
    filename: Annotated[Any, Advisory()] = None
    input_audio: Annotated[Any, Brought()] = None
    prompt_cache_breakpoint: Annotated[Any, Advisory()] = None


_TAG_OF_PART = {
    "input_text": "(text)",
    "output_text": "(text)",
    "text": "(text)",
    "refusal": "(refusal)",
    **dict.fromkeys(MEDIA_PARTS, "(media)"),
}


def _part_kind(value: object) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else None
    return _TAG_OF_PART.get(kind) if isinstance(kind, str) else None


def _an_object(value: object) -> object:
    if not isinstance(value, dict):
        raise invalid("must be an object")
    return value


Part = Annotated[
    Annotated[InputText, Tag("(text)")] | Annotated[Refusal, Tag("(refusal)")] | Annotated[MediaPart, Tag("(media)")],
    Discriminator(
        _part_kind,
        custom_error_type=UNKNOWN_KIND,
        custom_error_message=f"must be one of {', '.join(_TAG_OF_PART)}",
    ),
    BeforeValidator(_an_object),
]


def _text_or_array(value: object) -> str | None:
    if isinstance(value, str):
        return "(text)"
    return "(parts)" if isinstance(value, list) else None


Content = Annotated[
    Annotated[str, Tag("(text)")] | Annotated[list[Part], Field(max_length=limits.PARTS_MAX), Tag("(parts)")],
    Discriminator(
        _text_or_array,
        custom_error_type="invalid_value",
        custom_error_message="must be a string or an array of parts",
    ),
]
CallId = Annotated[str, Field(min_length=1, max_length=limits.NAME_CHARACTERS_MAX)]


class MessageItem(WireModel):
    """A message of a client, or one that an answer of ours held."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    id: Annotated[Any, Advisory()] = None
    status: ItemStatus = None
    phase: Annotated[Any, Advisory()] = None


class FunctionCallItem(WireModel):
    type: Literal["function_call"]
    call_id: CallId
    name: str = Field(min_length=1, max_length=limits.NAME_CHARACTERS_MAX)
    arguments: str
    id: Annotated[Any, Advisory()] = None
    status: ItemStatus = None
    parsed_arguments: Annotated[Any, Advisory()] = None  # left over by clients that read structured answers
    namespace: Annotated[Any, neutral("")] = None
    caller: Annotated[Any, neutral({"type": "direct"})] = None
    runs_async: Annotated[Any, neutral(False)] = Field(default=None, alias="async")
    runs_async_dumped: Annotated[Any, neutral(False)] = Field(default=None, alias="async_")  # by Python's client


class FunctionCallOutputItem(WireModel):
    type: Literal["function_call_output"]
    call_id: CallId
    output: Content
    id: Annotated[Any, Advisory()] = None
    status: ItemStatus = None
    name: Annotated[Any, Advisory()] = None
    namespace: Annotated[Any, neutral("")] = None
    caller: Annotated[Any, neutral({"type": "direct"})] = None


class SummaryText(WireModel):
    type: Literal["summary_text"]
    text: str


class ReasoningText(WireModel):
    type: Literal["reasoning_text", "text"]
    text: str


class ReasoningItem(WireModel):
    """What an earlier answer thought. ``encrypted_content`` is read when there is no ``content``."""

    type: Literal["reasoning"]
    summary: list[SummaryText] = Field(default_factory=list, max_length=limits.PARTS_MAX)
    content: list[ReasoningText] = Field(default_factory=list, max_length=limits.PARTS_MAX)
    encrypted_content: str | None = None
    id: Annotated[Any, Advisory()] = None
    status: ItemStatus = None


_TAG_OF_ITEM = {
    "message": "(message)",
    "function_call": "(call)",
    "function_call_output": "(output)",
    "reasoning": "(reasoning)",
}
_UNSUPPORTED_ITEMS = frozenset(
    {
        "item_reference",
        "additional_tools",
        "apply_patch_call",
        "apply_patch_call_output",
        "code_interpreter_call",
        "compaction",
        "compaction_trigger",
        "computer_call",
        "computer_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "file_search_call",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "program",
        "program_output",
        "shell_call",
        "shell_call_output",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)


def _named_item(value: object) -> object:
    """A message needs no type; a kind of item that belongs to tools this server lacks is refused by its name."""
    if not isinstance(value, dict):
        raise invalid("must be an object")
    kind = value.get("type")
    if kind is None and "role" in value:
        return {**value, "type": "message"}
    if isinstance(kind, str) and kind in _UNSUPPORTED_ITEMS:
        raise unsupported("is a kind of item that this server does not take", "type")
    return value


def _item_kind(value: object) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else None
    return _TAG_OF_ITEM.get(kind) if isinstance(kind, str) else None


InputItem = Annotated[
    Annotated[MessageItem, Tag("(message)")]
    | Annotated[FunctionCallItem, Tag("(call)")]
    | Annotated[FunctionCallOutputItem, Tag("(output)")]
    | Annotated[ReasoningItem, Tag("(reasoning)")],
    Discriminator(
        _item_kind,
        custom_error_type=UNKNOWN_KIND,
        custom_error_message=f"must be one of {', '.join(_TAG_OF_ITEM)}",
    ),
    BeforeValidator(_named_item),
]
