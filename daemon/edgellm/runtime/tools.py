"""Tools in OpenAI form, normalised to the fields of the runtime contract's ToolDefinition and ToolChoice."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgellm.errors import RequestError
from edgellm.parsing.messages import compact_json, unicode_text

TOOLS_MAX = 128

TOOL_CHOICE_MODES = ("none", "auto", "required", "function")


@dataclass(frozen=True, slots=True)
class Tool:
    """``has_*`` tells that the key was present, which templates can see; ``parameters`` is compact JSON text."""

    name: str
    description: str = ""
    parameters: str = "{}"
    strict: bool = False
    has_description: bool = False
    has_parameters: bool = False
    has_strict: bool = False


@dataclass(frozen=True, slots=True)
class ToolChoice:
    mode: str = "auto"
    function_name: str = ""

    @property
    def is_enforced(self) -> bool:
        """A call must be made."""
        return self.mode in ("required", "function")


def normalise_tools(tools: object, tool_choice: object = "auto") -> tuple[list[Tool], ToolChoice]:
    """Give the tools that are rendered and how they may be used. ``none`` renders no tools; null is absent."""
    definitions = _definitions(tools)
    choice = _choice(tool_choice, {tool.name for tool in definitions})
    return ([] if choice.mode == "none" else definitions), choice


def template_tool(tool: Any) -> dict[str, Any]:
    """Give what a chat template sees of a Tool or of the contract's ToolDefinition: only keys that were present."""
    function: dict[str, Any] = {"name": tool.name}
    if tool.has_description:
        function["description"] = tool.description
    if tool.has_parameters:
        function["parameters"] = json.loads(tool.parameters)
    if tool.has_strict:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _definitions(tools: object) -> list[Tool]:
    if tools is None:
        return []
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Sequence):
        raise RequestError("tools must be an array", param="tools")
    if len(tools) > TOOLS_MAX:
        raise RequestError(f"tools takes at most {TOOLS_MAX} entries, and has {len(tools)}", param="tools")
    definitions: list[Tool] = []
    for index, tool in enumerate(tools):
        definition = _definition(tool, f"tools[{index}]")
        if any(definition.name == other.name for other in definitions):
            raise RequestError(
                f"tools[{index}].function.name is the name of another tool", param=f"tools[{index}].function.name"
            )
        definitions.append(definition)
    return definitions


def _definition(tool: object, path: str) -> Tool:
    if not isinstance(tool, Mapping) or tool.get("type", "function") != "function":
        raise RequestError(f"{path} must be an object of type 'function'", param=path)
    function = tool.get("function")
    if not isinstance(function, Mapping):
        raise RequestError(f"{path}.function must be an object with a name", param=f"{path}.function")
    name = unicode_text(function.get("name"), f"{path}.function.name")
    if not name:
        raise RequestError(f"{path}.function.name must not be empty", param=f"{path}.function.name")
    description = function.get("description")
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise RequestError(f"{path}.function.parameters must be an object", param=f"{path}.function.parameters")
    if parameters is not None and not _describes_an_object(parameters):
        raise RequestError(
            f"{path}.function.parameters.type must be 'object': arguments are one",
            param=f"{path}.function.parameters.type",
        )
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise RequestError(f"{path}.function.strict must be true or false", param=f"{path}.function.strict")
    return Tool(
        name=name,
        description="" if description is None else unicode_text(description, f"{path}.function.description"),
        parameters="{}" if parameters is None else compact_json(parameters, f"{path}.function.parameters"),
        strict=bool(strict),
        has_description="description" in function,
        has_parameters="parameters" in function,
        has_strict="strict" in function,
    )


def _describes_an_object(schema: Mapping[str, Any]) -> bool:
    named = schema.get("type", "object")
    return named == "object" or (isinstance(named, list) and "object" in named)


def _choice(tool_choice: object, names: set[str]) -> ToolChoice:
    if tool_choice is None:
        return ToolChoice()
    if isinstance(tool_choice, str):
        if tool_choice not in ("none", "auto", "required"):
            raise RequestError(
                "tool_choice must be 'none', 'auto', 'required' or an object that names a function",
                param="tool_choice",
            )
        if tool_choice == "required" and not names:
            raise RequestError("tool_choice 'required' needs tools", param="tool_choice")
        return ToolChoice(tool_choice)
    function = tool_choice.get("function") if isinstance(tool_choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or name not in names:
        raise RequestError("tool_choice must name the function of one of the tools", param="tool_choice")
    return ToolChoice("function", name)
