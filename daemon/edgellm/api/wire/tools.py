"""Tools of a chat request and how they may be used."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from edgellm.api import limits
from edgellm.api.wire.fields import INVALID_VALUE, Advisory, WireModel

FunctionName = Annotated[str, Field(pattern=limits.FUNCTION_NAME_PATTERN)]


class FunctionDefinition(WireModel):
    """``strict`` is taken: arguments are enforced wherever a call is."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(WireModel):
    type: Literal["function"]
    function: FunctionDefinition
    cache_control: Annotated[Any, Advisory()] = None


class ChosenFunction(WireModel):
    name: FunctionName


class NamedToolChoice(WireModel):
    type: Literal["function"] = "function"
    function: ChosenFunction


def _choice_shape(value: object) -> str | None:
    if isinstance(value, dict | NamedToolChoice):
        return "(named)"
    return "(mode)" if value in ("none", "auto", "required") else None


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("(mode)")] | Annotated[NamedToolChoice, Tag("(named)")],
    Discriminator(
        _choice_shape,
        custom_error_type=INVALID_VALUE,
        custom_error_message="must be none, auto, required or an object that names a function",
    ),
]
