"""Messages in OpenAI form, normalised once to the fields of the runtime contract's Message.

The contract keeps apart what a template can tell apart: content absent, null, a string, or an array; reasoning
present or not; arguments as the client's string or as an object. A ChatMessage has the same field names as the
contract's Message, so that ``template_message`` renders either. Whatever reads messages reads these, so that what
is wrong with one is said in one place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn

from edgellm.errors import RequestError, UnsupportedModalityError

ROLES = ("system", "developer", "user", "assistant", "tool")
SYSTEM_ROLES = ("system", "developer")
TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
MESSAGES_MAX = 512
PARTS_MAX = 64

KIND_OF_PART: Final[Mapping[str, Literal["image", "audio", "video"]]] = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "audio": "audio",
    "audio_url": "audio",
    "input_audio": "audio",
    "video": "video",
    "video_url": "video",
}
"""What a part of that type brings."""


@dataclass(frozen=True, slots=True)
class ContentPart:
    type: str
    content: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """``arguments`` is JSON text; ``arguments_is_string`` tells that the client wrote it as a string."""

    id: str = ""
    type: str = "function"
    name: str = ""
    arguments: str = "{}"
    arguments_is_string: bool = False


@dataclass(frozen=True, slots=True)
class ChatMessage:
    role: str
    contents: list[ContentPart] = field(default_factory=list)
    reasoning_content: str = ""
    has_reasoning_content: bool = False
    tool_calls: list[ToolCall] = field(default_factory=list)
    has_tool_calls: bool = False
    tool_call_id: str = ""
    name: str = ""
    has_content: bool = True
    content_is_array: bool = False
    content_is_null: bool = False


def normalise_messages(messages: object, *, modalities: Sequence[str] = ("text",)) -> list[ChatMessage]:
    """Raise RequestError with the JSON path of the first thing that is wrong; give the messages otherwise."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise RequestError("messages must be an array of message objects", param="messages")
    if not messages:
        raise RequestError("messages must not be empty", param="messages")
    if len(messages) > MESSAGES_MAX:
        raise RequestError(f"messages takes at most {MESSAGES_MAX} entries, and has {len(messages)}", param="messages")
    normalised: list[ChatMessage] = []
    known_call_ids: set[str] = set()
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        chat_message = _normalise_message(message, path, modalities)
        if chat_message.role == "tool" and chat_message.tool_call_id not in known_call_ids:
            raise RequestError(
                f"{path}.tool_call_id must be the id of a tool call of an earlier assistant message",
                param=f"{path}.tool_call_id",
            )
        known_call_ids.update(call.id for call in chat_message.tool_calls if call.id)
        normalised.append(chat_message)
    return normalised


def template_message(message: Any) -> dict[str, Any]:
    """Give what a chat template sees of a ChatMessage or of the contract's Message: only keys that were present."""
    rendered: dict[str, Any] = {"role": message.role}
    if message.has_content:
        if message.content_is_null:
            rendered["content"] = None
        elif message.content_is_array:
            rendered["content"] = [_template_part(part) for part in message.contents]
        else:
            rendered["content"] = "".join(part.content for part in message.contents)
    if message.has_reasoning_content:
        rendered["reasoning_content"] = message.reasoning_content
    if message.has_tool_calls:
        rendered["tool_calls"] = [_template_tool_call(call) for call in message.tool_calls]
    if message.tool_call_id:
        rendered["tool_call_id"] = message.tool_call_id
    if message.name:
        rendered["name"] = message.name
    return rendered


def compact_json(value: object, param: str) -> str:
    """Dump without spaces and without ASCII escapes. Raises RequestError for what JSON cannot express."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except RecursionError as error:
        raise RequestError(f"{param} is nested too deep", param=param) from error
    except (TypeError, ValueError) as error:
        raise RequestError(f"{param} holds a value that JSON cannot express", param=param) from error
    return unicode_text(text, param)


def unicode_text(value: object, param: str) -> str:
    """Give a string that UTF-8 can carry: lone surrogates are refused here, by name."""
    if not isinstance(value, str):
        raise RequestError(f"{param} must be a string", param=param)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(f"{param} must be valid Unicode text", param=param) from error
    return value


def _normalise_message(message: object, path: str, modalities: Sequence[str]) -> ChatMessage:
    if not isinstance(message, Mapping):
        raise RequestError(f"{path} must be an object with role and content", param=path)
    role = message.get("role")
    if role == "function":
        raise RequestError(
            f"{path}.role 'function' is the old form; use 'tool' with tool_call_id", param=f"{path}.role"
        )
    if not isinstance(role, str) or role not in ROLES:
        raise RequestError(f"{path}.role must be one of {', '.join(ROLES)}", param=f"{path}.role")
    has_reasoning, reasoning = _reasoning(message, path)
    tool_calls = _tool_calls(message, path) if role == "assistant" else []
    name = message.get("name")
    tool_call_id = message.get("tool_call_id")
    content, content_path = message.get("content"), f"{path}.content"
    refusal = message.get("refusal")
    if role == "assistant" and content is None and isinstance(refusal, str) and refusal:
        content, content_path = refusal, f"{path}.refusal"
    elif content is None and role != "assistant":
        raise RequestError(f"{path}.content must be a string or an array of parts", param=content_path)
    return ChatMessage(
        role=role,
        contents=_contents(content, content_path, modalities),
        reasoning_content=reasoning,
        has_reasoning_content=has_reasoning,
        tool_calls=tool_calls,
        has_tool_calls=bool(tool_calls),
        tool_call_id="" if tool_call_id is None else unicode_text(tool_call_id, f"{path}.tool_call_id"),
        name="" if name is None else unicode_text(name, f"{path}.name"),
        has_content=content is not None or "content" in message,
        content_is_array=isinstance(content, (list, tuple)),
        content_is_null=content is None and "content" in message,
    )


def _reasoning(message: Mapping[str, Any], path: str) -> tuple[bool, str]:
    for key in ("reasoning_content", "reasoning"):
        if key in message:
            value = message[key]
            return True, "" if value is None else unicode_text(value, f"{path}.{key}")
    return False, ""


def _contents(content: object, path: str, modalities: Sequence[str]) -> list[ContentPart]:
    if content is None:
        return []
    if isinstance(content, str):
        return [ContentPart("text", unicode_text(content, path))]
    if not isinstance(content, (list, tuple)):
        raise RequestError(f"{path} must be a string or an array of parts", param=path)
    if len(content) > PARTS_MAX:
        raise RequestError(f"{path} takes at most {PARTS_MAX} parts, and has {len(content)}", param=path)
    return [_content_part(part, f"{path}[{index}]", modalities) for index, part in enumerate(content)]


def _content_part(part: object, path: str, modalities: Sequence[str]) -> ContentPart:
    if isinstance(part, str):
        return ContentPart("text", unicode_text(part, path))
    if not isinstance(part, Mapping):
        raise RequestError(f"{path} must be a string or an object with a type", param=path)
    part_type = part.get("type", "text" if "text" in part else None)
    if not isinstance(part_type, str):
        raise RequestError(f"{path}.type is not a kind of content part", param=f"{path}.type")
    if part_type in TEXT_PARTS:
        return ContentPart("text", unicode_text(part.get("text"), f"{path}.text"))
    if part_type == "refusal":
        return ContentPart("text", unicode_text(part.get("refusal"), f"{path}.refusal"))
    kind = KIND_OF_PART.get(part_type)
    if kind is None:
        raise RequestError(f"{path}.type is not a kind of content part", param=f"{path}.type")
    if kind not in modalities:
        raise UnsupportedModalityError(f"{path}: this model takes no {kind} input", param=path)
    return ContentPart(kind, "")


def _tool_calls(message: Mapping[str, Any], path: str) -> list[ToolCall]:
    calls = message.get("tool_calls")
    if calls is None or calls == []:
        legacy = message.get("function_call")
        return [] if legacy is None else [_tool_call(legacy, f"{path}.function_call")]
    if not isinstance(calls, (list, tuple)):
        raise RequestError(f"{path}.tool_calls must be an array", param=f"{path}.tool_calls")
    return [_tool_call(call, f"{path}.tool_calls[{index}]") for index, call in enumerate(calls)]


def _tool_call(call: object, path: str) -> ToolCall:
    if not isinstance(call, Mapping):
        raise RequestError(f"{path} must be an object", param=path)
    function, function_path = call, path
    if call.get("function") is not None:
        function, function_path = call["function"], f"{path}.function"
        if not isinstance(function, Mapping):
            raise RequestError(f"{function_path} must be an object", param=function_path)
    name = unicode_text(function.get("name"), f"{function_path}.name")
    if not name:
        raise RequestError(f"{function_path}.name must not be empty", param=f"{function_path}.name")
    call_id, call_type = call.get("id"), call.get("type")
    arguments, is_string = _arguments(function.get("arguments"), f"{function_path}.arguments")
    return ToolCall(
        id="" if call_id is None else unicode_text(call_id, f"{path}.id"),
        type="function" if call_type is None else unicode_text(call_type, f"{path}.type"),
        name=name,
        arguments=arguments,
        arguments_is_string=is_string,
    )


def _arguments(arguments: object, path: str) -> tuple[str, bool]:
    if not isinstance(arguments, str):
        return compact_json({} if arguments is None else arguments, path), False
    if arguments:
        try:
            value = json.loads(arguments, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{path} must be JSON text", param=path) from error
        if "\\u" in arguments:
            compact_json(value, path)  # an escape may stand for half a character
    return unicode_text(arguments, path), True


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _template_part(part: Any) -> dict[str, str]:
    if part.type == "text":
        return {"type": "text", "text": part.content}
    return {"type": str(part.type)}


def _template_tool_call(call: Any) -> dict[str, Any]:
    arguments = call.arguments if call.arguments_is_string else json.loads(call.arguments or "{}")
    rendered: dict[str, Any] = {"type": call.type, "function": {"name": call.name, "arguments": arguments}}
    if call.id:
        rendered["id"] = call.id
    return rendered
