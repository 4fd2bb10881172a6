"""From a Responses request's instructions, history and input items to the prompt of a generation."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgellm.api.media_parts import MediaParts
from edgellm.api.wire.response_items import (
    MEDIA_PARTS,
    Content,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputItem,
    MediaPart,
    MessageItem,
    ReasoningItem,
    Refusal,
)
from edgellm.api.wire.responses import AllowedTools, FunctionTool, NamedTool, ResponsesRequest
from edgellm.errors import RequestError, UnsupportedModalityError
from edgellm.media.media_input import MediaInput
from edgellm.media.media_source import MediaSource
from edgellm.runtime.generation import ChatPrompt

_SEAL = "edgellm."
_HISTORY = "previous_response_id"


@dataclass(slots=True)
class Conversation:
    """Messages in OpenAI's chat form as they grow, with the place in the request that each came from.

    What an assistant thought, said and called in a row is one message, however many items it was.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    media: MediaParts = field(default_factory=MediaParts)

    def add(self, message: dict[str, Any], origin: str) -> None:
        self.messages.append(message)
        self.origins.append(origin)

    def add_text(self, role: str, content: str | list[dict[str, Any]], origin: str) -> None:
        if role != "assistant":
            self.add({"role": role, "content": content}, origin)
            return
        turn = self._assistant(origin)
        turn["content"] = content if turn["content"] is None else [*_parts(turn["content"]), *_parts(content)]

    def add_reasoning(self, text: str, origin: str) -> None:
        turn = self._assistant(origin)
        turn["reasoning_content"] = turn.get("reasoning_content", "") + text

    def add_call(self, call_id: str, name: str, arguments: str, origin: str) -> None:
        function = {"name": name, "arguments": arguments}
        turn = self._assistant(origin)
        turn.setdefault("tool_calls", []).append({"id": call_id, "type": "function", "function": function})

    def _assistant(self, origin: str) -> dict[str, Any]:
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.add({"role": "assistant", "content": None}, origin)
        return self.messages[-1]


def conversation_of(
    request: ResponsesRequest, history: Sequence[dict[str, Any]], media: Sequence[MediaInput] = ()
) -> Conversation:
    """``history``, which brought ``media``, and then the request's input, without its instructions.

    Raises RequestError.
    """
    conversation = Conversation([dict(message) for message in history], [_HISTORY for _ in history])
    conversation.media.sources += [
        MediaSource(each.kind, _HISTORY, _HISTORY, resizes=each.resizes, fps=each.fps, files=each.files)
        for each in media
    ]
    if isinstance(request.input, str):
        conversation.add_text("user", request.input, "input")
        return conversation
    for index, item in enumerate(request.input):
        _add_item(conversation, item, f"input[{index}]")
    return conversation


def response_prompt(request: ResponsesRequest, conversation: Conversation) -> tuple[ChatPrompt, list[str]]:
    """The prompt, and for each of its messages where in the request it came from."""
    messages, origins = conversation.messages, conversation.origins
    if request.instructions:
        messages = [{"role": "system", "content": request.instructions}, *messages]
        origins = ["instructions", *origins]
    tools, choice = _tools(request)
    prompt = ChatPrompt(
        messages=messages,
        tools=[_tool(tool) for tool in tools],
        tool_choice=choice,
        parallel_tool_calls=request.parallel_tool_calls,
    )
    return prompt, origins


def messages_of_output(output: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """An answer of ours as it is on the wire, in the form that the next turn's prompt has it."""
    answer = Conversation()
    for item in output:
        match item["type"]:
            case "reasoning":
                answer.add_reasoning("".join(part["text"] for part in item["content"]), "")
            case "message":
                answer.add_text("assistant", "".join(part["text"] for part in item["content"]), "")
            case "function_call":
                answer.add_call(item["call_id"], item["name"], item["arguments"], "")
    return answer.messages


def tool_origins(request: ResponsesRequest) -> list[str]:
    """For each tool of the prompt where in the request it came from."""
    offered, _ = _tools(request)
    return [f"tools[{index}]" for index, tool in enumerate(request.tools) if tool in offered]


def sealed(reasoning: str) -> str:
    """Reasoning as clients keep it that hand back nothing else; it is opaque to them, and no secret."""
    return _SEAL + base64.urlsafe_b64encode(reasoning.encode()).decode()


def _opened(content: str, path: str) -> str:
    foreign = RequestError(f"{path} was not made by this server.", param=path)
    if not content.startswith(_SEAL):
        raise foreign
    try:
        return base64.b64decode(content[len(_SEAL) :], altchars=b"-_", validate=True).decode()
    except ValueError:  # binascii.Error and UnicodeDecodeError are kinds of it
        raise foreign from None


def _add_item(conversation: Conversation, item: InputItem, path: str) -> None:
    match item:
        case MessageItem():
            content = _content(item.content, f"{path}.content", item.role, conversation.media)
            conversation.add_text(item.role, content, path)
        case FunctionCallItem():
            conversation.add_call(item.call_id, item.name, item.arguments, path)
        case FunctionCallOutputItem():
            content = _content(item.output, f"{path}.output", "tool", conversation.media)
            conversation.add({"role": "tool", "tool_call_id": item.call_id, "content": content}, path)
        case ReasoningItem():
            text = "".join(part.text for part in item.content)
            if not text and item.encrypted_content:
                text = _opened(item.encrypted_content, f"{path}.encrypted_content")
            if text:
                conversation.add_reasoning(text, path)


def _content(content: Content, path: str, role: str, media: MediaParts) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    parts: list[dict[str, Any]] = []
    for index, part in enumerate(content):
        if isinstance(part, MediaPart):
            parts.append(_media_part(part, f"{path}[{index}]", role, media))
            continue
        parts.append({"type": "text", "text": part.refusal if isinstance(part, Refusal) else part.text})
    return parts


def _media_part(part: MediaPart, place: str, role: str, media: MediaParts) -> dict[str, Any]:
    if part.type == "input_file":
        raise UnsupportedModalityError(f"{place}: this model takes no {MEDIA_PARTS[part.type]} input.", param=place)
    return media.part({name: getattr(part, name) for name in part.model_fields_set}, place, role)


def _parts(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _tools(request: ResponsesRequest) -> tuple[Sequence[FunctionTool], str | dict[str, Any]]:
    """The tools that may be called, and how: a choice among some of them leaves the others out."""
    names = [tool.name for tool in request.tools]
    match request.tool_choice:
        case AllowedTools() as allowed:
            wanted = [tool.name for tool in allowed.tools]
            for index, name in enumerate(wanted):
                _check_offered(name, names, f"tool_choice.tools[{index}].name")
            return [tool for tool in request.tools if tool.name in wanted], allowed.mode
        case NamedTool(name=name):
            _check_offered(name, names, "tool_choice.name")
            return request.tools, {"type": "function", "function": {"name": name}}
        case mode:
            return request.tools, mode


def _check_offered(name: str, names: Sequence[str], path: str) -> None:
    if name not in names:
        raise RequestError(f"{path} must be the name of one of the tools.", param=path)


def _tool(tool: FunctionTool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = tool.parameters
    return {"type": "function", "function": function}
