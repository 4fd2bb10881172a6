"""Finds variables that no role has: one that is misspelt would be ignored without a word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
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
        if name in known_variables():
            continue
        least = SUGGESTED_MIN if name.startswith(beginnings) else MISSPELT_MIN
        near = difflib.get_close_matches(name, settable, 1, least)
        if near or name.startswith(beginnings):
            meant = f"; did you mean {near[0]}?" if near else ""
            yield f"{name} is no variable of a role{meant}"


class FilterModule:
    """How Ansible finds them."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"variable_mistakes": variable_mistakes}
