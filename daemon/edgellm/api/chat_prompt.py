"""From a chat request's messages to the prompt of a generation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgellm.api.media_parts import MediaParts
from edgellm.api.wire.chat import ChatRequest
from edgellm.api.wire.messages import MediaPart, Message, RefusalPart, TextPart, ToolCall
from edgellm.api.wire.tools import AllowedToolsChoice, FunctionDefinition, FunctionTool, NamedToolChoice
from edgellm.errors import RequestError
from edgellm.runtime.generation import ChatPrompt


def chat_prompt(request: ChatRequest, media: MediaParts) -> ChatPrompt:
    """What was absent stays absent and what was null stays null: templates tell them apart."""
    tools, choice = _tools(request)
    return ChatPrompt(
        messages=[_message(message, f"messages[{index}]", media) for index, message in enumerate(request.messages)],
        tools=[{"type": "function", "function": _sent(tool.function)} for tool in tools],
        tool_choice=choice,
        parallel_tool_calls=request.parallel_tool_calls,
        apply_chat_template=request.apply_chat_template,
        add_generation_prompt=request.add_generation_prompt,
    )


def _sent(value: FunctionDefinition | MediaPart) -> dict[str, Any]:
    """Only what was sent: templates can tell."""
    return {name: getattr(value, name) for name in value.model_fields_set}


def _tools(request: ChatRequest) -> tuple[Sequence[FunctionTool], str | dict[str, Any]]:
    """The tools that may be called, and how: a choice among some of them leaves the others out."""
    match request.tool_choice:
        case AllowedToolsChoice(allowed_tools=allowed):
            offered = {tool.function.name for tool in request.tools}
            wanted = [tool.function.name for tool in allowed.tools]
            for index, name in enumerate(wanted):
                if name not in offered:
                    path = f"tool_choice.allowed_tools.tools[{index}].function.name"
                    raise RequestError(f"{path} must be the name of one of the tools.", param=path)
            return [tool for tool in request.tools if tool.function.name in wanted], allowed.mode
        case NamedToolChoice(function=function):
            return request.tools, {"type": "function", "function": {"name": function.name}}
        case mode:
            return request.tools, mode


def _message(message: Message, path: str, media: MediaParts) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": message.role}
    if isinstance(message.content, list):
        plain["content"] = [
            media.part(_sent(part), f"{path}.content[{index}]", message.role)
            if isinstance(part, MediaPart)
            else _part(part)
            for index, part in enumerate(message.content)
        ]
    elif "content" in message.model_fields_set:
        plain["content"] = message.content
    if message.audio is not None and message.content is None:
        if message.role != "assistant":
            raise RequestError(f"{path}.audio is for messages of the assistant alone.", param=f"{path}.audio")
        plain["content"] = message.audio.transcript
    if message.tool_calls:
        plain["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    if message.function_call is not None:
        call = message.function_call
        plain["function_call"] = {"name": call.name, "arguments": call.arguments}
    for name in ("name", "tool_call_id", "refusal", "reasoning_content", "reasoning"):
        value = getattr(message, name)
        if value is not None:
            plain[name] = value
    return plain


def _part(part: TextPart | RefusalPart) -> dict[str, Any]:
    if isinstance(part, RefusalPart):
        return {"type": "refusal", "refusal": part.refusal}
    return {"type": "text", "text": part.text}


def _tool_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": call.type, "function": function}
