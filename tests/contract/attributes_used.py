"""Finds, by reading the source, which attributes of a runtime module the adapter uses: classes, enums, and fields.

It follows what the adapter does: the module is called ``module`` or ``self._module``; a variable that is assigned
``module.Class(...)``, or a part of such a variable, is an object of that class, also where it is passed on within a
file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MODULE_NAMES = ("module", "_module")

# Function name to the classes of its parameters.
Passed = dict[str, dict[str, str]]


@dataclass
class AttributesUsed:
    """``members`` are pairs of class and member name; ``names`` are what is looked up in the module itself."""

    names: set[str] = field(default_factory=set)
    members: set[tuple[str, str]] = field(default_factory=set)


def find_attributes(files: list[Path], classes: dict[str, Any]) -> AttributesUsed:
    """``classes`` is the contract's, with its extensions: it tells the class of a part."""
    used = AttributesUsed()
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        passed: Passed = {}
        while _pass_on(functions, classes, passed):
            pass
        for function in functions:
            _collect(function, _kinds(function, classes, passed), used)
    return used


def _pass_on(functions: list[ast.FunctionDef], classes: dict[str, Any], passed: Passed) -> bool:
    """Learn the classes of parameters from calls; tells whether there was something to learn."""
    parameters = {function.name: [each.arg for each in function.args.args] for function in functions}
    known = sum(len(kinds) for kinds in passed.values())
    for function in functions:
        kinds = _kinds(function, classes, passed)
        for call in ast.walk(function):
            if not isinstance(call, ast.Call):
                continue
            is_method = isinstance(call.func, ast.Attribute)
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            names = parameters.get(name, [])[1 if is_method else 0 :]
            for parameter, argument in zip(names, call.args, strict=False):
                if kind := _class_of(argument, kinds):
                    passed.setdefault(name, {})[parameter] = kind
    return sum(len(kinds) for kinds in passed.values()) > known


def _kinds(function: ast.FunctionDef, classes: dict[str, Any], passed: Passed) -> dict[str, str]:
    """Classes of the variables in one function."""
    kinds = dict(passed.get(function.name, {}))
    kinds |= {target: kind for target, value in _assignments(function) if (kind := _made_class(value))}
    for target, value in _assignments(function):  # parts, once their owners are known
        if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id in kinds:
            owner = classes.get(kinds[value.value.id], {"properties": {}})
            part = owner["properties"].get(value.attr, {}).get("type", "")
            if part in classes:
                kinds[target] = part
    return kinds


def _collect(function: ast.FunctionDef, kinds: dict[str, str], used: AttributesUsed) -> None:
    for node in ast.walk(function):
        if not isinstance(node, ast.Attribute):
            continue
        if _is_module(node.value):
            used.names.add(node.attr)
        elif kind := _class_of(node.value, kinds):
            used.members.add((kind, node.attr))


def _assignments(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(function):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value
        elif isinstance(node, ast.Assign):
            yield from _pairs(node.targets[0], node.value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for each, its_value in zip(target.elts, value.elts, strict=True):
            yield from _pairs(each, its_value)


def _is_module(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in MODULE_NAMES


def _made_class(value: ast.expr) -> str:
    """``module.Class(...)``, ``module.Class.create()`` and the enum ``module.Class`` are of that class."""
    if isinstance(value, ast.Call):
        value = value.func
    if isinstance(value, ast.Attribute) and value.attr == "create":
        value = value.value
    return value.attr if isinstance(value, ast.Attribute) and _is_module(value.value) else ""


def _class_of(node: ast.expr, kinds: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return kinds.get(node.id, "")
    return _made_class(node)
