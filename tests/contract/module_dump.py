"""Dumps a runtime module as plain data: classes, fields, defaults, enums and signatures, free of the module's name."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

_ADDRESS = re.compile(r"<(\w+) object at 0x[0-9a-f]+>")
_OVERLOAD = re.compile(r"^\d+\. (.*)$", re.MULTILINE)
# Values at the edges of the integer types; which of them a setter takes tells the type behind it.
_EDGES = (-(2**63), -(2**31) - 1, -1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64)
_INTEGER_TYPES = {
    (False, False, True, False, False, False, False, False): "int32",
    (True, True, True, True, True, False, False, False): "int64",
    (False, False, False, True, True, True, True, False): "uint64",
}


def dump(module: ModuleType) -> dict[str, Any]:
    names = [name for name in dir(module) if not name.startswith("_")]
    values = {name: getattr(module, name) for name in names}
    classes = {name: value for name, value in values.items() if isinstance(value, type)}
    exceptions = {name: value for name, value in classes.items() if issubclass(value, BaseException)}
    enums = {name: value for name, value in classes.items() if hasattr(value, "__members__")}
    plain = {name: value for name, value in classes.items() if name not in exceptions and name not in enums}
    functions = {name: value for name, value in values.items() if callable(value) and name not in classes}
    return {
        "classes": {name: _dump_class(value, module.__name__) for name, value in plain.items()},
        "enums": {
            name: {member: int(entry) for member, entry in value.__members__.items()} for name, value in enums.items()
        },
        "functions": {name: _signatures(value, module.__name__) for name, value in functions.items()},
        "exceptions": {name: _bases(value) for name, value in exceptions.items()},
        "attributes": sorted(name for name in names if name not in classes and name not in functions),
    }


def _dump_class(kind: type, module_name: str) -> dict[str, Any]:
    members = {name: value for name, value in vars(kind).items() if not name.startswith("_")}
    instance = _make(kind)
    init = vars(kind)["__init__"]
    return {
        "init": _signatures(init, module_name) if (init.__doc__ or "").startswith("__init__(") else [],
        "default_constructible": instance is not None,
        "properties": {
            name: _dump_property(value, name, instance, module_name)
            for name, value in members.items()
            if isinstance(value, property)
        },
        "static_methods": {
            name: _signatures(value.__func__, module_name)
            for name, value in members.items()
            if isinstance(value, staticmethod)
        },
        "methods": {
            name: _signatures(value, module_name)
            for name, value in members.items()
            if not isinstance(value, property | staticmethod)
        },
    }


def _dump_property(value: property, name: str, instance: object, module_name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": _plain(value.fget.__doc__ or "", module_name).rpartition(" -> ")[2].strip()}
    entry["writable"] = value.fset is not None
    if instance is None:
        return entry
    entry["default"] = _plain_value(getattr(instance, name))
    if entry["writable"] and entry["type"] in ("int", "int | None"):
        entry["accepts"] = _integer_type(type(instance), name)
    return entry


def _make(kind: type) -> object | None:
    try:
        return kind()
    except TypeError:
        return None


def _integer_type(kind: type, name: str) -> str:
    instance = kind()
    taken = tuple(_takes(instance, name, value) for value in _EDGES)
    return _INTEGER_TYPES.get(taken, str(taken))


def _takes(instance: object, name: str, value: int) -> bool:
    try:
        setattr(instance, name, value)
    except TypeError:
        return False
    return True


def _plain_value(value: object) -> object:
    """Data as it is, an enum member by its name, any other object by its class."""
    if value is None or isinstance(value, bool | int | float | str | list | dict):
        return value
    name = getattr(value, "name", None) if hasattr(type(value), "__members__") else None
    return name if name is not None else f"<{type(value).__name__}>"


def _bases(kind: type) -> list[str]:
    return [base.__name__ for base in kind.__mro__[1:] if base is not object]


def _signatures(function: Any, module_name: str) -> list[str]:
    text = _plain(function.__doc__ or "", module_name)
    first, _, rest = text.partition("\n")
    if rest.startswith("Overloaded function."):
        return _OVERLOAD.findall(rest)
    return [first]


def _plain(text: str, module_name: str) -> str:
    return _ADDRESS.sub(r"<\1>", text.replace(f"{module_name}.", ""))
