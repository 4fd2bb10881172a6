"""Messages as a chat template takes them, from messages as they came over the wire.

Validation of the protocol is the API's; what is checked here protects the prompt: roles, text that is not Unicode,
and parts that a text model cannot take. Errors name the field.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgellm.errors import RequestError, UnsupportedModalityError
from edgellm.parsing.template_traits import TemplateTraits

ROLES = ("system", "developer", "user", "assistant", "tool")
SYSTEM_ROLES = ("system", "developer")
TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
SYSTEM_JOINER = "\n\n"
MAX_NESTING = 64
SHORT_CALL_ID_CHARACTERS = 9
_SHORT_CALL_ID = re.compile(rf"[a-zA-Z0-9]{{{SHORT_CALL_ID_CHARACTERS}}}")

TextGuard = Callable[[str, str], str]
"""Takes a text and the path of its field; returns the text to render or raises RequestError."""


def normalise_messages(
    messages: Sequence[Mapping[str, Any]], traits: TemplateTraits, guard: TextGuard
) -> tuple[list[dict[str, Any]], list[int]]:
    """The messages to render, and for each the index of the message it came from."""
    normal: list[dict[str, Any]] = []
    origins: list[int] = []
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if not isinstance(message, Mapping):
            raise RequestError(f"{path} is not an object", param=path)
        entry = _message(message, path, traits, guard)
        leading_system = entry["role"] == "system" and len(normal) == 1 and normal[0]["role"] == "system"
        if leading_system and traits.merges_systems:
            normal[0]["content"] = _merged(normal[0]["content"], entry["content"])
            continue
        normal.append(entry)
        origins.append(index)
    return normal, origins


def normalise_tools(tools: Sequence[Mapping[str, Any]], guard: TextGuard) -> list[dict[str, Any]]:
    """Tools in OpenAI form, every text guarded."""
    return [_guarded(tool, f"tools[{index}]", guard) for index, tool in enumerate(tools)]


def plain_text(messages: Sequence[Mapping[str, Any]], guard: TextGuard) -> str:
    """The texts of all messages in order, without a joiner: the prompt when no template is applied."""
    return "".join(
        _joined(_parts(message.get("content"), f"messages[{index}].content", guard))
        for index, message in enumerate(messages)
    )


def _message(message: Mapping[str, Any], path: str, traits: TemplateTraits, guard: TextGuard) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise RequestError(f"{path}.role is not one of {', '.join(ROLES)}", param=f"{path}.role")
    entry: dict[str, Any] = {"role": "system" if role in SYSTEM_ROLES else role}
    entry.update(_content(message, path, traits, guard))
    if isinstance(message.get("name"), str):
        entry["name"] = guard(message["name"], f"{path}.name")
    if isinstance(message.get("tool_call_id"), str):
        entry["tool_call_id"] = _call_id(message["tool_call_id"], f"{path}.tool_call_id", traits, guard)
    reasoning_field = "reasoning_content" if message.get("reasoning_content") is not None else "reasoning"
    if isinstance(message.get(reasoning_field), str):
        entry["reasoning_content"] = guard(message[reasoning_field], f"{path}.{reasoning_field}")
    calls = _tool_calls(message, path, traits, guard)
    if calls:
        entry["tool_calls"] = calls
    return entry


def _content(message: Mapping[str, Any], path: str, traits: TemplateTraits, guard: TextGuard) -> dict[str, Any]:
    field = f"{path}.content"
    content = message.get("content")
    if content is None and isinstance(message.get("refusal"), str):
        content, field = message["refusal"], f"{path}.refusal"
    if content is None:
        if not traits.takes_null:
            return {"content": ""}
        return {"content": None} if "content" in message else {}
    parts = _parts(content, field, guard)
    if traits.needs_parts or (traits.takes_parts and not isinstance(content, str)):
        return {"content": [{"type": "text", "text": text} for text in parts]}
    return {"content": _joined(parts)}


def _parts(content: object, field: str, guard: TextGuard) -> list[str]:
    if content is None:
        return []
    if isinstance(content, str):
        return [guard(content, field)]
    if not isinstance(content, Sequence):
        raise RequestError(f"{field} is neither a text nor a list of parts", param=field)
    texts: list[str] = []
    for index, part in enumerate(content):
        path = f"{field}[{index}]"
        if isinstance(part, str):
            texts.append(guard(part, path))
            continue
        if not isinstance(part, Mapping):
            raise RequestError(f"{path} is not an object", param=path)
        kind = part.get("type", "text" if "text" in part else None)
        name = "refusal" if kind == "refusal" else "text"
        if not isinstance(kind, str) or (kind not in TEXT_PARTS and kind != "refusal"):
            raise UnsupportedModalityError(f"{path}: this model takes text only", param=path)
        if not isinstance(part.get(name), str):
            raise RequestError(f"{path}.{name} is not a text", param=f"{path}.{name}")
        texts.append(guard(part[name], f"{path}.{name}"))
    return texts


def _joined(parts: Sequence[str]) -> str:
    return "".join(parts)


def _merged(first: Any, second: Any) -> Any:
    if isinstance(first, list) or isinstance(second, list):
        return [*_as_parts(first), {"type": "text", "text": SYSTEM_JOINER}, *_as_parts(second)]
    return SYSTEM_JOINER.join(text for text in (first, second) if text)


def _as_parts(content: Any) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else [{"type": "text", "text": content or ""}]


def _tool_calls(
    message: Mapping[str, Any], path: str, traits: TemplateTraits, guard: TextGuard
) -> list[dict[str, Any]]:
    calls, field = message.get("tool_calls"), f"{path}.tool_calls"
    if not calls and isinstance(message.get("function_call"), Mapping):
        calls, field = [{"function": message["function_call"]}], f"{path}.function_call"
    if not calls:
        return []
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise RequestError(f"{field} is not a list", param=field)
    return [_tool_call(call, f"{field}[{index}]", traits, guard) for index, call in enumerate(calls)]


def _tool_call(call: object, path: str, traits: TemplateTraits, guard: TextGuard) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise RequestError(f"{path} is not an object", param=path)
    function = call.get("function", call)
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise RequestError(f"{path}.function has no name", param=f"{path}.function")
    arguments = function.get("arguments", {})
    field = f"{path}.function.arguments"
    if isinstance(arguments, str) and not traits.arguments_as_text:
        arguments = _parsed_object(arguments)
    elif not isinstance(arguments, str) and traits.arguments_as_text:
        arguments = json.dumps(arguments, ensure_ascii=False)
    entry: dict[str, Any] = {
        "type": "function",
        "function": {
            "name": guard(function["name"], f"{path}.function.name"),
            "arguments": _guarded(arguments, field, guard),
        },
    }
    if isinstance(call.get("id"), str):
        entry["id"] = _call_id(call["id"], f"{path}.id", traits, guard)
    return entry


def _call_id(call_id: str, path: str, traits: TemplateTraits, guard: TextGuard) -> str:
    guarded = guard(call_id, path)
    if not traits.short_call_ids or _SHORT_CALL_ID.fullmatch(call_id):
        return guarded
    return hashlib.sha256(call_id.encode()).hexdigest()[:SHORT_CALL_ID_CHARACTERS]


def _parsed_object(text: str) -> Any:
    """What the model wrote as arguments: an object when it is one, else the text as it was."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _guarded(value: Any, path: str, guard: TextGuard, depth: int = 0) -> Any:
    if isinstance(value, str):
        return guard(value, path)
    if depth > MAX_NESTING:
        raise RequestError(f"{path} is nested more than {MAX_NESTING} deep", param=path)
    if isinstance(value, Mapping):
        return {
            guard(key, path) if isinstance(key, str) else key: _guarded(entry, f"{path}.{key}", guard, depth + 1)
            for key, entry in value.items()
        }
    if isinstance(value, list | tuple):
        return [_guarded(entry, f"{path}[{index}]", guard, depth + 1) for index, entry in enumerate(value)]
    return value
