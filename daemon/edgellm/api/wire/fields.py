"""The four classes of request fields: implemented, neutral, advisory and refused.

An implemented field is a plain typed field. A null means the field was not sent, for every optional field.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

UNKNOWN_PARAMETER = "unknown_parameter"
UNSUPPORTED_PARAMETER = "unsupported_parameter"
UNSUPPORTED_MODALITY = "unsupported_modality"
INVALID_VALUE = "invalid_value"
UNKNOWN_KIND = "unknown_kind"  # of an object whose "type" decides its shape


def invalid(message: str, name: str | None = None) -> PydanticCustomError:
    """``message`` continues a sentence that begins with the field's path; it must not quote the value.

    ``name`` is the field of the value that is meant, where it is not the value itself.
    """
    named = {} if name is None else {"name": name}
    return PydanticCustomError(INVALID_VALUE, "{message}", {"message": message, **named})


def unsupported(message: str, name: str | None = None) -> PydanticCustomError:
    """Refuses the value that is being validated, or the field ``name`` of it. ``message`` is as for ``invalid``."""
    named = {} if name is None else {"name": name}
    return PydanticCustomError(UNSUPPORTED_PARAMETER, "{message}", {"message": message, **named})


def _shape(value: object) -> str | None:
    if isinstance(value, str):
        return "(text)"
    return "(object)" if isinstance(value, dict) else None


TextOrObject = Annotated[
    Annotated[str, Tag("(text)")] | Annotated[dict[str, Any], Tag("(object)")],
    Discriminator(
        _shape,
        custom_error_type=INVALID_VALUE,
        custom_error_message="must be a string or an object",
    ),
]
"""Tags in parentheses are steps of validation that do not appear in JSON paths."""


@dataclass
class ParseContext:
    """Carried through one validation. ``unknown`` counts the names that were passed over."""

    unknown_fields: Literal["refuse", "ignore"] = "refuse"
    unknown: int = field(default=0)


@dataclass(frozen=True, eq=False)  # typing merges equal annotations, and (1,) equals (True,)
class Neutral:
    """A known field without support: only values that ask for nothing pass, and they are dropped."""

    values: tuple[object, ...] = ()
    hint: str = ""  # what to do instead

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"enum": [*self.values, None], "description": "Not supported; values that ask for nothing are taken."}

    def _check(self, value: object) -> None:
        if not any(_same(value, neutral) for neutral in self.values):
            raise PydanticCustomError(
                UNSUPPORTED_PARAMETER,
                "{message}",
                {"message": f"is not supported{'; ' if self.hint else ''}{self.hint}"},
            )


def neutral(*values: object, hint: str = "") -> Neutral:
    return Neutral(values, hint)


@dataclass(frozen=True)
class Advisory:
    """A field that never asks for different text: any value is taken and has no effect on generation."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.any_schema()

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"description": "Taken; without effect on the text."}


@dataclass(frozen=True)
class Brought:
    """What a part brings beside text: any value is taken here, and looked at where its model takes such parts."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.any_schema()

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"description": "For a model that takes such parts."}


def _same(value: object, neutral_value: object) -> bool:
    """JSON equality: true is not 1, and 0 is 0.0."""
    if isinstance(value, bool) or isinstance(neutral_value, bool):
        return value is neutral_value
    return value == neutral_value


class WireModel(BaseModel):
    """An object in a request. Unknown names are refused or passed over as the context says."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True, protected_namespaces=())

    null_is_a_value: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _sort_out(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict):
            return data
        takes_null = _takes_null_by_name(cls)
        kept: dict[str, object] = {}
        for name, value in data.items():
            takes = takes_null.get(name)
            if takes is None:
                _pass_over(name, info.context)
            elif value is not None or takes:
                kept[name] = value
        return kept


@cache
def _takes_null_by_name(model: type[WireModel]) -> dict[str, bool]:
    """Every field by the name it has in JSON; whether a null is handed on to it, or means that it was not sent."""
    return {
        spec.alias or name: spec.is_required() or (spec.alias or name) in model.null_is_a_value
        for name, spec in model.model_fields.items()
    }


def _pass_over(name: str, context: ParseContext | None) -> None:
    context = context or ParseContext()
    context.unknown += 1
    if context.unknown_fields == "refuse":
        raise PydanticCustomError(UNKNOWN_PARAMETER, "{message}", {"message": "is not a known field", "name": name})
