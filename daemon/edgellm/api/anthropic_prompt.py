"""From an Anthropic request's system, messages and tools to the prompt of a generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgellm.api.media_parts import MediaParts
from edgellm.api.wire.anthropic import ClearThinking, KeepTurns, PromptFields
from edgellm.api.wire.anthropic_blocks import (
    MEDIA_BLOCKS,
    Block,
    MediaBlock,
    MessageParam,
    ResultBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from edgellm.errors import RequestError, UnsupportedModalityError, UnsupportedParameterError
from edgellm.runtime.generation import ChatPrompt

ERROR_MARK = "[tool error] "
"""Goes before the result of a tool that failed: chat templates have no other place for it."""

_TURN_JOINER = "\n\n"


@dataclass(slots=True)
class _Turns:
    """Messages in OpenAI form as they grow, with the place in the request that each came from."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)

    def add(self, message: dict[str, Any], origin: str) -> None:
        last = self.messages[-1] if self.messages else None
        if last is not None and last["role"] == message["role"] and message["role"] in ("user", "assistant"):
            _join(last, message)
            return
        self.messages.append(message)
        self.origins.append(origin)


def anthropic_prompt(request: PromptFields, media: MediaParts) -> tuple[ChatPrompt, list[str]]:
    """The prompt, whose media are added to ``media``, and for each of its messages where in the request it came from.

    Turns of one role in a row are one turn, as in the protocol. Raises RequestError.
    """
    turns = _Turns()
    if request.system is not None:
        turns.add({"role": "system", "content": _texts(request.system)}, "system")
    forgotten = _forgotten_turns(request)
    call_ids: set[str] = set()
    for index, message in enumerate(request.messages):
        _add_message(turns, message, f"messages[{index}]", call_ids, media, thinks=index not in forgotten)
    if request.messages[-1].role == "assistant":
        path = f"messages[{len(request.messages) - 1}]"
        raise RequestError(
            f"{path} must not be of the assistant: an answer that is already begun is not supported.", param=path
        )
    prompt = ChatPrompt(
        messages=turns.messages,
        tools=[_tool(tool.name, tool.description, tool.input_schema) for tool in request.tools],
        tool_choice=_tool_choice(request),
        parallel_tool_calls=not (request.tool_choice and request.tool_choice.disable_parallel_tool_use),
    )
    return prompt, turns.origins


def _add_message(
    turns: _Turns, message: MessageParam, path: str, call_ids: set[str], media: MediaParts, *, thinks: bool
) -> None:
    if isinstance(message.content, str):
        turns.add({"role": message.role, "content": message.content}, path)
        return
    texts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    reasoning: list[str] = []
    for index, block in enumerate(message.content):
        block_path = f"{path}.content[{index}]"
        _check_role(message.role, block, block_path)
        match block:
            case TextBlock():
                texts.append({"type": "text", "text": block.text})
            case ThinkingBlock():
                reasoning.append(block.thinking)
            case ToolUseBlock():
                call_ids.add(block.id)
                function = {"name": block.name, "arguments": block.input}
                calls.append({"id": block.id, "type": "function", "function": function})
            case ToolResultBlock():
                if texts:  # what the user said before the result stays before it
                    turns.add({"role": "user", "content": texts}, path)
                    texts = []
                turns.add(_result(block, block_path, call_ids, media), block_path)
            case MediaBlock():
                texts.append(_media_part(block, block_path, media))
    if message.role == "assistant":
        turn: dict[str, Any] = {"role": "assistant", "content": texts or None}
        if reasoning and thinks:
            turn["reasoning_content"] = "".join(reasoning)
        if calls:
            turn["tool_calls"] = calls
        turns.add(turn, path)
    elif texts:
        turns.add({"role": message.role, "content": texts}, path)


def _check_role(role: str, block: Block, path: str) -> None:
    if isinstance(block, TextBlock):
        return
    is_result = isinstance(block, ToolResultBlock)
    if role == "system" or (role == "user") is not (is_result or isinstance(block, MediaBlock)):
        raise RequestError(f"{path}: a message of the {role} has no {block.type} blocks.", param=path)


def _result(block: ToolResultBlock, path: str, call_ids: set[str], media: MediaParts) -> dict[str, Any]:
    if block.tool_use_id not in call_ids:
        raise RequestError(
            f"{path}.tool_use_id must be the id of a tool_use block of an earlier message.",
            param=f"{path}.tool_use_id",
        )
    content: Any = block.content if isinstance(block.content, str) else _result_parts(block.content, path, media)
    if block.is_error:
        content = ERROR_MARK + content if isinstance(content, str) else [_part(ERROR_MARK), *content]
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}


def _result_parts(blocks: Sequence[ResultBlock], path: str, media: MediaParts) -> list[dict[str, Any]]:
    return [
        _media_part(block, f"{path}.content[{index}]", media) if isinstance(block, MediaBlock) else _part(block.text)
        for index, block in enumerate(blocks)
    ]


def _media_part(block: MediaBlock, path: str, media: MediaParts) -> dict[str, Any]:
    if block.type != "image":
        raise UnsupportedModalityError(f"{path}: this model takes no {MEDIA_BLOCKS[block.type]} input.", param=path)
    if block.transformations is not None:
        raise UnsupportedParameterError(
            f"{path}.transformations is not supported: send the image as it is to be seen.",
            param=f"{path}.transformations",
        )
    return media.image_block(block.source, path)


def _texts(content: str | Sequence[TextBlock]) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else [_part(block.text) for block in content]


def _part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _join(turn: dict[str, Any], further: Mapping[str, Any]) -> None:
    contents = [content for content in (turn.get("content"), further.get("content")) if content]
    if len(contents) > 1:
        first, second = ([_part(content)] if isinstance(content, str) else content for content in contents)
        turn["content"] = [*first, _part(_TURN_JOINER), *second]
    else:
        turn["content"] = contents[0] if contents else None
    if "tool_calls" in further:
        turn["tool_calls"] = [*turn.get("tool_calls", []), *further["tool_calls"]]
    if "reasoning_content" in further:
        turn["reasoning_content"] = turn.get("reasoning_content", "") + further["reasoning_content"]


def _tool(name: str, description: str | None, input_schema: Mapping[str, Any]) -> dict[str, Any]:
    function: dict[str, Any] = {"name": name}
    if description is not None:
        function["description"] = description
    return {"type": "function", "function": {**function, "parameters": input_schema}}


def _tool_choice(request: PromptFields) -> str | dict[str, Any]:
    choice = request.tool_choice
    if choice is None:
        return "auto"
    if choice.type in ("any", "tool") and not request.tools:
        raise RequestError(f"tool_choice.type {choice.type} needs tools.", param="tool_choice.type")
    if choice.type == "tool":
        if choice.name not in [tool.name for tool in request.tools]:
            raise RequestError("tool_choice.name must be the name of one of the tools.", param="tool_choice.name")
        return {"type": "function", "function": {"name": choice.name}}
    return "required" if choice.type == "any" else choice.type


def _forgotten_turns(request: PromptFields) -> set[int]:
    """Indexes of the assistant's messages whose thinking the client asked to leave out."""
    edits = request.context_management.edits if request.context_management else []
    forgotten: set[int] = set()
    for edit in edits:
        keep = edit.keep if isinstance(edit, ClearThinking) else "all"
        if isinstance(keep, KeepTurns):
            thinking = [index for index, message in enumerate(request.messages) if _has_thinking(message)]
            forgotten.update(thinking[: -keep.value])
    return forgotten


def _has_thinking(message: MessageParam) -> bool:
    return isinstance(message.content, list) and any(isinstance(block, ThinkingBlock) for block in message.content)
