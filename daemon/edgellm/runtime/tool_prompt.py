"""Tools for models whose chat template has no place for them: told in the text of the messages.

Templates that know tools show them as their authors trained; for the others the tools, the calls of earlier turns and
their results become text in the form that the parsers read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgellm.parsing.messages import KIND_OF_PART, SYSTEM_ROLES, normalise_messages
from edgellm.runtime.generation import ChatPrompt
from edgellm.runtime.tools import Tool, template_tool

_INTRODUCTION = (
    "You can call functions. Each line between <tools> and </tools> describes one as JSON:\n"
    "<tools>\n{tools}\n</tools>\n"
    "To call one, write a JSON object with its name and its arguments between these tags, and nothing after them:\n"
    '<tool_call>\n{{"name": "NAME", "arguments": {{…}}}}\n</tool_call>'
)


def with_tools_as_text(prompt: ChatPrompt, tools: Sequence[Tool], modalities: Sequence[str] = ("text",)) -> ChatPrompt:
    """The prompt with no tools, calls or results beside its texts and what else a model of ``modalities`` takes.

    Raises RequestError for wrong messages.
    """
    has_calls = any(isinstance(message, Mapping) and _is_part_of_a_call(message) for message in prompt.messages)
    if not tools and not has_calls:
        return replace(prompt, tools=(), tool_choice="auto")
    normalise_messages(prompt.messages, modalities=modalities)  # errors must name the fields that were sent
    messages: list[Mapping[str, Any]] = []
    for message in prompt.messages:
        if message["role"] == "tool":
            result = _joined("<tool_response>\n", message.get("content"), "\n</tool_response>")
            if messages and messages[-1].get("of_tools"):
                messages[-1] = {**messages[-1], "content": _joined(messages[-1]["content"], "\n", result)}
            else:
                messages.append({"role": "user", "content": result, "of_tools": True})
        elif message["role"] == "assistant" and _is_part_of_a_call(message):
            messages.append(_with_calls_as_text(message))
        else:
            messages.append(message)
    messages = [{key: value for key, value in message.items() if key != "of_tools"} for message in messages]
    if tools:
        lines = "\n".join(json.dumps(template_tool(tool), ensure_ascii=False) for tool in tools)
        _introduce(messages, _INTRODUCTION.format(tools=lines))
    return replace(prompt, messages=messages, tools=(), tool_choice="auto")


def _is_part_of_a_call(message: Mapping[str, Any]) -> bool:
    if message.get("role") == "tool":
        return True
    return message.get("role") == "assistant" and bool(message.get("tool_calls") or message.get("function_call"))


def _introduce(messages: list[Mapping[str, Any]], introduction: str) -> None:
    """In the system message where there is one, else before the first message: no place in the list changes."""
    first = messages[0]
    content = first.get("content")
    part = {"type": "text", "text": introduction}
    in_system = first.get("role") in SYSTEM_ROLES
    changed: object
    if isinstance(content, (list, tuple)):
        changed = [*content, {"type": "text", "text": "\n\n"}, part] if in_system else [part, *content]
    elif in_system:
        changed = f"{content or ''}\n\n{introduction}"
    else:
        changed = f"{introduction}\n\n{content or ''}"
    messages[0] = {**first, "content": changed}


def _with_calls_as_text(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls") or [message["function_call"]]
    texts = [_text(message.get("content"))] if message.get("content") else []
    for call in calls:
        function = call.get("function") or call
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
        name = json.dumps(function["name"], ensure_ascii=False)
        texts.append(f'<tool_call>\n{{"name": {name}, "arguments": {arguments or "{}"}}}\n</tool_call>')
    kept = {key: value for key, value in message.items() if key not in ("tool_calls", "function_call")}
    return {**kept, "content": "\n".join(texts)}


def _text(content: object) -> str:
    if isinstance(content, (list, tuple)):
        return "".join(part if isinstance(part, str) else str(part.get("text") or "") for part in content)
    return "" if content is None else str(content)


def _joined(*contents: object) -> str | list[dict[str, Any]]:
    """One text where all are text; else parts, with what is no text in its place."""
    parts: list[dict[str, Any]] = []
    for content in contents:
        for part in content if isinstance(content, (list, tuple)) else [content]:
            if isinstance(part, Mapping) and part.get("type", "text") in KIND_OF_PART:
                parts.append(dict(part))
                continue
            text = _text([part] if isinstance(part, Mapping) else part)
            if parts and parts[-1]["type"] == "text":
                parts[-1]["text"] += text
            else:
                parts.append({"type": "text", "text": text})
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts
