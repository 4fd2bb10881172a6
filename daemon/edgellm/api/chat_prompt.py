"""From a chat request's messages to the prompt of a generation."""

from __future__ import annotations

from typing import Any

from edgellm.api.wire.chat import ChatRequest
from edgellm.api.wire.messages import MediaPart, Message, Part, RefusalPart, ToolCall
from edgellm.api.wire.tools import FunctionDefinition, NamedToolChoice
from edgellm.errors import UnsupportedModalityError
from edgellm.runtime.generation import ChatPrompt

_KIND_OF_PART = {"image_url": "image", "input_audio": "audio", "video_url": "video"}


def chat_prompt(request: ChatRequest) -> ChatPrompt:
    """What was absent stays absent and what was null stays null: templates tell them apart."""
    return ChatPrompt(
        messages=[_message(message, f"messages[{index}]") for index, message in enumerate(request.messages)],
        tools=[{"type": "function", "function": _present(tool.function)} for tool in request.tools],
        tool_choice=_tool_choice(request),
        parallel_tool_calls=request.parallel_tool_calls,
        apply_chat_template=request.apply_chat_template,
        add_generation_prompt=request.add_generation_prompt,
    )


def _present(function: FunctionDefinition) -> dict[str, Any]:
    """Only what was sent: templates can tell."""
    return {name: getattr(function, name) for name in function.model_fields_set}


def _tool_choice(request: ChatRequest) -> str | dict[str, Any]:
    choice = request.tool_choice
    if isinstance(choice, NamedToolChoice):
        return {"type": "function", "function": {"name": choice.function.name}}
    return choice


def _message(message: Message, path: str) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": message.role}
    if isinstance(message.content, list):
        plain["content"] = [_part(part, f"{path}.content[{index}]") for index, part in enumerate(message.content)]
    elif "content" in message.model_fields_set:
        plain["content"] = message.content
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


def _part(part: Part, path: str) -> dict[str, Any]:
    if isinstance(part, MediaPart):
        kind = _KIND_OF_PART[part.type]
        raise UnsupportedModalityError(f"{path}: this model takes no {kind} input.", param=path)
    if isinstance(part, RefusalPart):
        return {"type": "refusal", "refusal": part.refusal}
    return {"type": "text", "text": part.text}


def _tool_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": call.type, "function": function}
