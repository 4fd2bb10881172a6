"""Finds variables that no role has, and values that YAML has made something else of than was written.

Either would be taken without a word: the one as nothing, the other as a word that no role knows.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).resolve().parents[2] / "roles"
# Of single boards: no role has a default for them.
OF_BOARDS = frozenset({"gateway_board_address", "gateway_board_tls_name"})
# How alike two names are, of 1, so that one is taken for the other: where a role's name comes first, and where not.
SUGGESTED_MIN = 0.75
MISSPELT_MIN = 0.9
# Types of argument_specs that are text; and what YAML reads as a switch unless it is quoted.
WORDS = frozenset({"str", "path"})
TRUE_WORDS, FALSE_WORDS = frozenset({"on", "yes", "true"}), frozenset({"off", "no", "false"})
# Parts of edgellm_settings have names of the inventory's own behind this.
SETTINGS_PART = re.compile(r"edgellm_settings_\w+")


@cache
def settable_variables() -> frozenset[str]:
    """What roles document, and what playbooks ask for beside it."""
    names = set(OF_BOARDS)
    for role in ROLES.iterdir():
        names |= set(yaml.safe_load((role / "defaults/main.yml").read_text(encoding="utf-8")))
        for playbook in (ROLES.parent / "playbooks").glob("*.yml"):
            names |= set(re.findall(rf"\b({role.name}_\w+) \| default\(", playbook.read_text(encoding="utf-8")))
    return frozenset(names)


@cache
def known_variables() -> frozenset[str]:
    """Also what roles make for themselves, which is there in a second play."""
    names = set(settable_variables())
    for role in ROLES.iterdir():
        variables = role / "vars/main.yml"
        if variables.is_file():
            names |= set(yaml.safe_load(variables.read_text(encoding="utf-8")))
        for file in (role / "tasks").glob("*.yml"):
            text = file.read_text(encoding="utf-8")
            names |= set(re.findall(r"^\s*register: (\w+)", text, re.MULTILINE))
            names |= set(re.findall(rf"^\s*({role.name}_\w+):(?: |$)", text, re.MULTILINE))
    return frozenset(names)


def variable_mistakes(names: Iterable[str], own: Iterable[str] = ()) -> list[str]:
    """A line for each name that begins as a role's variables do, or is almost one of them, and is none."""
    return list(_mistakes(sorted(set(names) - set(own))))


def _mistakes(names: Iterable[str]) -> Iterator[str]:
    settable = sorted(settable_variables())
    beginnings = tuple(f"{role.name}_" for role in ROLES.iterdir())
    for name in names:
        if name in known_variables() or SETTINGS_PART.fullmatch(name):
            continue
        least = SUGGESTED_MIN if name.startswith(beginnings) else MISSPELT_MIN
        near = difflib.get_close_matches(name, settable, 1, least)
        if near or name.startswith(beginnings):
            meant = f"; did you mean {near[0]}?" if near else ""
            yield f"{name} is no variable of a role{meant}"


def value_mistakes(values: Mapping[str, Any]) -> list[str]:
    """A line for each value that is a switch, or a number with a point, where a role wants a word.

    ``values`` are as the inventory has them: templates are words.
    """
    described = described_options()
    return [
        line
        for name in sorted(described.keys() & values.keys())
        for line in _wrong(name, described[name], values[name])
    ]


@cache
def described_options() -> dict[str, Any]:
    """What argument_specs say of each variable, by its name."""
    found: dict[str, Any] = {}
    for role in ROLES.iterdir():
        specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
        found |= specs["main"]["options"]
    return found


def _wrong(place: str, option: Mapping[str, Any], value: Any) -> Iterator[str]:
    kind = option.get("type", "str")
    if kind in WORDS and isinstance(value, (bool, float)):
        yield f"{place}: {_unquoted(value, option)}"
    elif kind == "list" and isinstance(value, list):
        element = {
            "type": option.get("elements", "raw"),
            "options": option.get("options"),
            "choices": option.get("choices"),
        }
        for number, one in enumerate(value, start=1):
            yield from _wrong(f"{place}, row {number}", element, one)
    elif kind == "dict" and isinstance(value, Mapping):
        for key, inner in (option.get("options") or {}).items():
            if key in value:
                yield from _wrong(f"{place}, {key}", inner, value[key])


def _unquoted(value: bool | float, option: Mapping[str, Any]) -> str:
    if not isinstance(value, bool):
        return f'YAML has read a number, and a word is wanted: write it in quotes, such as "{value}"'
    choices = [str(choice) for choice in option.get("choices") or ()]
    meant = [choice for choice in choices if choice.lower() in (TRUE_WORDS if value else FALSE_WORDS)]
    one_of = f" (one of {', '.join(choices)})" if choices else ""
    write = f'"{meant[0]}"' if meant else '"on" or "yes"' if value else '"off" or "no"'
    read = f"YAML has read a bare word as {str(value).lower()}, and a word is wanted"
    return f"{read}: write {write} with its quotes{one_of}"
