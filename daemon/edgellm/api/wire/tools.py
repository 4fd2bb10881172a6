"""Tools of a chat request and how they may be used."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from edgellm.api import limits
from edgellm.api.wire.fields import INVALID_VALUE, Advisory, WireModel, unsupported

FunctionName = Annotated[str, Field(pattern=limits.FUNCTION_NAME_PATTERN)]


class FunctionDefinition(WireModel):
    """``strict`` is taken: arguments are enforced wherever a call is."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


def a_function(value: object) -> object:
    """Refuses by name the tools that only other servers run."""
    if isinstance(value, dict) and "type" in value and value["type"] != "function":
        raise unsupported("is not supported: this server runs no tools of its own; offer functions", "type")
    return value


class FunctionTool(WireModel):
    type: Literal["function"]
    function: FunctionDefinition
    cache_control: Annotated[Any, Advisory()] = None


class ChosenFunction(WireModel):
    name: FunctionName


class NamedToolChoice(WireModel):
    type: Literal["function"] = "function"
    function: ChosenFunction


class AllowedFunction(WireModel):
    type: Literal["function"]
    function: ChosenFunction


class AllowedTools(WireModel):
    mode: Literal["auto", "required"]
    tools: list[Annotated[AllowedFunction, BeforeValidator(a_function)]] = Field(
        min_length=1, max_length=limits.TOOLS_MAX
    )


class AllowedToolsChoice(WireModel):
    """The other tools are left out."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


def _choice_shape(value: object) -> str | None:
    if isinstance(value, dict):
        return "(allowed)" if value.get("type") == "allowed_tools" else "(named)"
    return "(mode)" if value in ("none", "auto", "required") else None


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("(mode)")]
    | Annotated[AllowedToolsChoice, Tag("(allowed)")]
    | Annotated[NamedToolChoice, BeforeValidator(a_function), Tag("(named)")],
    Discriminator(
        _choice_shape,
        custom_error_type=INVALID_VALUE,
        custom_error_message="must be none, auto, required or an object that names functions",
    ),
]
