"""The committed contract, and how a dump of either module is brought down to it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

CONTRACT_FILE = Path(__file__).with_name("contract.json")
EXTENSIONS_FILE = Path(__file__).with_name("extensions.json")

Dump = dict[str, Any]


def contract() -> Dump:
    return dict(json.loads(CONTRACT_FILE.read_text()))


def extensions() -> dict[str, Any]:
    return dict(json.loads(EXTENSIONS_FILE.read_text()))


def without_parts_not_provided(nvidia_dump: Dump) -> Dump:
    """The published module less what edgellm._native leaves out on purpose."""
    kept = copy.deepcopy(nvidia_dump)
    for name in extensions()["not_provided"]["classes"]:
        del kept["classes"][name]
    return kept


def without_extensions(native_dump: Dump) -> Dump:
    """Our module less its listed extensions. A listed extension that is not there is a KeyError or ValueError."""
    kept, added = copy.deepcopy(native_dump), extensions()["added"]
    for name in added["attributes"]:
        kept["attributes"].remove(name)
    for group in ("exceptions", "classes", "functions"):
        for name in added[group]:
            del kept[group][name]
    for group in ("properties", "methods"):
        for owner, names in added[group].items():
            for name in names:
                del kept["classes"][owner][group][name]
    for owner, parameters in added["constructor_parameters"].items():
        for parameter in parameters:
            _remove_parameter(kept["classes"][owner], owner, parameter)
    return kept


def _remove_parameter(entry: Dump, owner: str, parameter: str) -> None:
    """Take an added parameter off the first constructor, where it must be the last one."""
    ending = f", {parameter}) -> None"
    if not entry["init"][0].endswith(ending):
        raise ValueError(f"{owner}.__init__ has no last parameter {parameter!r}")
    entry["init"][0] = entry["init"][0].removesuffix(ending) + ") -> None"
