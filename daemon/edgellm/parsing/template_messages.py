"""Messages as one model's chat template takes them: which forms it knows was found by probing, see TemplateTraits.

They were checked before (``messages``). Every text that reaches the prompt passes a guard here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgellm.errors import RequestError, UnsupportedModalityError
from edgellm.parsing.messages import SYSTEM_ROLES, ChatMessage, ContentPart, ToolCall
from edgellm.parsing.template_traits import TemplateTraits

SYSTEM_JOINER = "\n\n"
MAX_NESTING = 64
SHORT_CALL_ID_CHARACTERS = 9
_SHORT_CALL_ID = re.compile(rf"[a-zA-Z0-9]{{{SHORT_CALL_ID_CHARACTERS}}}")

TextGuard = Callable[[str], str]
"""Takes a text and returns it as it may be rendered."""


def messages_for_template(
    messages: Sequence[ChatMessage], traits: TemplateTraits, guard: TextGuard
) -> tuple[list[dict[str, Any]], list[int]]:
    """The messages to render, and for each the index of the message it came from."""
    rendered: list[dict[str, Any]] = []
    origins: list[int] = []
    for index, message in enumerate(messages):
        entry = _message(message, f"messages[{index}]", traits, guard)
        leading_system = entry["role"] == "system" and len(rendered) == 1 and rendered[0]["role"] == "system"
        if leading_system and traits.merges_systems:
            rendered[0]["content"] = _merged(rendered[0]["content"], entry["content"])
            continue
        rendered.append(entry)
        origins.append(index)
    return rendered, origins


def tools_for_template(tools: Sequence[Mapping[str, Any]], guard: TextGuard) -> list[dict[str, Any]]:
    """Tools in OpenAI form, every text guarded."""
    return [_guarded(tool, f"tools[{index}]", guard) for index, tool in enumerate(tools)]


def _message(message: ChatMessage, path: str, traits: TemplateTraits, guard: TextGuard) -> dict[str, Any]:
    entry: dict[str, Any] = {"role": "system" if message.role in SYSTEM_ROLES else message.role}
    entry.update(_content(message, path, traits, guard))
    if message.name:
        entry["name"] = guard(message.name)
    if message.tool_call_id:
        entry["tool_call_id"] = _call_id(message.tool_call_id, traits, guard)
    if message.has_reasoning_content:
        entry["reasoning_content"] = guard(message.reasoning_content)
    if message.tool_calls:
        entry["tool_calls"] = [
            _tool_call(call, f"{path}.tool_calls[{index}]", traits, guard)
            for index, call in enumerate(message.tool_calls)
        ]
    return entry


def _content(message: ChatMessage, path: str, traits: TemplateTraits, guard: TextGuard) -> dict[str, Any]:
    if message.content_is_null or not message.has_content:
        if not traits.takes_null:
            return {"content": ""}
        return {"content": None} if message.has_content else {}
    if traits.needs_parts or (traits.takes_parts and message.content_is_array):
        return {"content": [_part(part, guard) for part in message.contents]}
    for index, part in enumerate(message.contents):
        if part.type != "text":
            raise UnsupportedModalityError(
                f"{path}.content[{index}]: this model's chat template has no place for {part.type} input",
                param=f"{path}.content[{index}]",
            )
    return {"content": "".join(guard(part.content) for part in message.contents)}


def _part(part: ContentPart, guard: TextGuard) -> dict[str, str]:
    return {"type": "text", "text": guard(part.content)} if part.type == "text" else {"type": part.type}


def _merged(first: Any, second: Any) -> Any:
    if isinstance(first, list) or isinstance(second, list):
        return [*_as_parts(first), {"type": "text", "text": SYSTEM_JOINER}, *_as_parts(second)]
    return SYSTEM_JOINER.join(text for text in (first, second) if text)


def _as_parts(content: Any) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else [{"type": "text", "text": content or ""}]


def _tool_call(call: ToolCall, path: str, traits: TemplateTraits, guard: TextGuard) -> dict[str, Any]:
    arguments: Any = call.arguments
    if not traits.arguments_as_text:
        arguments = _parsed_object(arguments) if call.arguments_is_string else json.loads(arguments)
    elif not call.arguments_is_string:
        arguments = json.dumps(json.loads(arguments), ensure_ascii=False)
    entry: dict[str, Any] = {
        "type": "function",
        "function": {
            "name": guard(call.name),
            "arguments": _guarded(arguments, f"{path}.function.arguments", guard),
        },
    }
    if call.id:
        entry["id"] = _call_id(call.id, traits, guard)
    return entry


def _call_id(call_id: str, traits: TemplateTraits, guard: TextGuard) -> str:
    if not traits.short_call_ids or _SHORT_CALL_ID.fullmatch(call_id):
        return guard(call_id)
    return hashlib.sha256(call_id.encode()).hexdigest()[:SHORT_CALL_ID_CHARACTERS]


def _parsed_object(text: str) -> Any:
    """What the model wrote as arguments: an object when it is one, else the text as it was."""
    if not text.strip():
        return {}
    value = json.loads(text)
    return value if isinstance(value, dict) else text


def _guarded(value: Any, path: str, guard: TextGuard, depth: int = 0) -> Any:
    if isinstance(value, str):
        return guard(value)
    if depth > MAX_NESTING:
        raise RequestError(f"{path} is nested more than {MAX_NESTING} deep", param=path)
    if isinstance(value, Mapping):
        return {
            guard(key) if isinstance(key, str) else key: _guarded(entry, f"{path}.{key}", guard, depth + 1)
            for key, entry in value.items()
        }
    if isinstance(value, list | tuple):
        return [_guarded(entry, f"{path}[{index}]", guard, depth + 1) for index, entry in enumerate(value)]
    return value
