"""Writes daemon/edgellm/_native.pyi out of the built module, or checks that the committed stub still fits it.

``python native/stubs/generate.py`` writes; with ``--check`` it prints the difference and ends with 1 if there is one.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from edgellm.runtime.native_module import load_native_module

MODULE = "edgellm._native"
STUB = Path(__file__).parents[2] / "daemon" / "edgellm" / "_native.pyi"
LINE_LENGTH = 120

HEADER = '''"""{doc}"""

# Written by native/stubs/generate.py out of the built module. Do not edit: change the bindings, build, run it again.

import collections.abc
import typing

import numpy
import numpy.typing

_Float: typing.TypeAlias = typing.SupportsFloat | typing.SupportsIndex
_Int: typing.TypeAlias = typing.SupportsInt | typing.SupportsIndex
'''

_OVERLOAD = re.compile(r"^\d+\. ", re.MULTILINE)
# Defaults that are objects have no source form.
_OBJECT_DEFAULT = re.compile(r"= <[^<>]*>")
_ALIASES = {
    "typing.SupportsFloat | typing.SupportsIndex": "_Float",
    "typing.SupportsInt | typing.SupportsIndex": "_Int",
}


def stub_text(module: ModuleType) -> str:
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    kinds = {name: value for name, value in public.items() if isinstance(value, type)}
    functions = {name: value for name, value in public.items() if callable(value) and name not in kinds}
    attributes = {name: value for name, value in public.items() if name not in kinds and name not in functions}
    sections = [HEADER.format(doc=module.__doc__)]
    sections += [f"{name}: {type(value).__name__}\n" for name, value in sorted(attributes.items())]
    sections.append("\n".join(_exception(name, value) for name, value in _base_first(kinds)) + "\n")
    for name, value in sorted(kinds.items()):
        if not issubclass(value, BaseException):
            sections.append("\n".join(_class(name, value)) + "\n")
    sections.append("\n".join(line for _, value in sorted(functions.items()) for line in _function(value, "")) + "\n")
    return "\n".join(sections).rstrip("\n") + "\n"


def _base_first(kinds: dict[str, type]) -> list[tuple[str, type]]:
    exceptions = [(name, value) for name, value in kinds.items() if issubclass(value, BaseException)]
    return sorted(exceptions, key=lambda entry: (len(entry[1].__mro__), entry[0]))


def _exception(name: str, kind: type) -> str:
    return f"class {name}({kind.__bases__[0].__name__}): ..."


def _class(name: str, kind: Any) -> Iterator[str]:
    yield f"class {name}:"
    members = getattr(kind, "__members__", None)
    doc = (kind.__doc__ or "").partition("\n")[0]
    lines = [f'"""{doc}"""', ""] if doc else []
    lines += list(_enum_body(name, members)) if members is not None else list(_class_body(kind))
    yield from (f"    {line}" if line else "" for line in lines)


def _enum_body(name: str, members: Iterable[str]) -> Iterator[str]:
    for member in members:
        yield f"{member}: typing.ClassVar[{name}]"
    yield f"__members__: typing.ClassVar[dict[str, {name}]]"
    yield "def __init__(self, value: _Int) -> None: ..."
    yield "def __int__(self) -> int: ..."
    yield "def __index__(self) -> int: ..."
    yield "def __hash__(self) -> int: ..."
    yield from _property("name", "str", None)
    yield from _property("value", "int", None)


def _class_body(kind: type) -> Iterator[str]:
    members = {name: value for name, value in vars(kind).items() if not name.startswith("_")}
    if (vars(kind)["__init__"].__doc__ or "").startswith("__init__("):
        yield from _function(vars(kind)["__init__"], "    ")
    for name, value in members.items():
        if isinstance(value, property):
            yield from _property(name, _result(value.fget.__doc__), value.fset and _value_type(value.fset.__doc__))
        elif isinstance(value, staticmethod):
            yield from _function(value.__func__, "    ", "@staticmethod")
        else:
            yield from _function(value, "    ")


def _property(name: str, kind: str, setter_kind: str | None) -> Iterator[str]:
    yield "@property"
    yield from _definition(name, ["self"], kind, "", "    ")
    if setter_kind:
        yield f"@{name}.setter"
        yield from _definition(name, ["self", f"value: {setter_kind}"], "None", "", "    ")


def _function(function: Any, indent: str, *decorators: str) -> Iterator[str]:
    first, _, rest = (function.__doc__ or "").partition("\n")
    overloads = [part.partition("\n") for part in _OVERLOAD.split(rest)[1:]] if "Overloaded function." in rest else []
    for signature, _, doc in overloads or [(first, "", rest)]:
        yield from ["@typing.overload"] if overloads else []
        yield from decorators
        name, parameters, result = _parts(signature)
        yield from _definition(name, parameters, result, " ".join(doc.split()), indent)


def _definition(name: str, parameters: list[str], result: str, doc: str, indent: str) -> Iterator[str]:
    body = "" if doc else " ..."
    line = f"def {name}({', '.join(parameters)}) -> {result}:{body}"
    if len(indent + line) <= LINE_LENGTH:
        yield line
    else:
        yield f"def {name}("
        inner = ", ".join(parameters)
        fits = len(indent + inner) + 4 <= LINE_LENGTH
        yield from [f"    {inner}"] if fits else [f"    {each}," for each in parameters]
        yield f") -> {result}:{body}"
    if doc:
        yield f'    """{doc}"""'
        if not indent:
            yield ""


def _parts(signature: str) -> tuple[str, list[str], str]:
    """Name, parameters and result of a signature as pybind11 writes it, in source form."""
    name, _, rest = signature.strip().partition("(")
    inner, _, result = rest.rpartition(") -> ")
    parameters = [re.sub(r"^self: .*", "self", parameter) for parameter in _split(_in_source_form(inner))]
    return name, parameters, _in_source_form(result)


def _in_source_form(text: str) -> str:
    text = _OBJECT_DEFAULT.sub("= ...", text.replace(f"{MODULE}.", "").replace("'", '"'))
    for written, alias in _ALIASES.items():
        text = text.replace(written, alias)
    return text


def _split(parameters: str) -> list[str]:
    """Split at commas outside brackets and strings."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(parameters):
        depth += character in "[({<"
        depth -= character in "])}>"
        if character == "," and depth == 0:
            parts.append(parameters[start:at].strip())
            start = at + 1
    last = parameters[start:].strip()
    return [*parts, last] if last else parts


def _result(doc: str | None) -> str:
    return _parts(doc or "")[2]


def _value_type(doc: str | None) -> str:
    """The type of a setter's only parameter."""
    return _parts(doc or "")[1][1].partition(": ")[2]


def main(arguments: list[str]) -> int:
    text = stub_text(load_native_module(os.environ))
    if arguments != ["--check"]:
        STUB.write_text(text, encoding="utf-8")
        return 0
    committed = STUB.read_text(encoding="utf-8")
    difference = list(difflib.unified_diff(committed.splitlines(), text.splitlines(), STUB.name, "module", lineterm=""))
    sys.stdout.write("\n".join(difference))
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
