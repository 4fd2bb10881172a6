"""``edgellm engine``: builds engines, says what is there and why a model would hit or miss, and removes them."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from edgellm.cli.arguments import SERVER_OPTIONS, add_config_option, add_setting_options

if TYPE_CHECKING:
    from edgellm.cli.engine_context import EngineContext

_OPTIONS = tuple(
    option for option in SERVER_OPTIONS if option.spelling in ("--cache-dir", "--engine-cache-max-size-gb")
)


class ActionModule(Protocol):
    """What each module of actions offers; it is imported when the verb is used."""

    def configure(self, action: str, parser: argparse.ArgumentParser) -> None: ...

    def run(self, namespace: argparse.Namespace, context: EngineContext) -> int: ...


@dataclass(frozen=True, slots=True)
class Action:
    summary: str
    module: str

    def load(self) -> ActionModule:
        return cast(ActionModule, importlib.import_module(self.module))


ACTIONS: Mapping[str, Action] = {
    "build": Action("build what is missing, and wait until it is there", "edgellm.cli.engine_build"),
    "list": Action("engines that are here, the most recently used first", "edgellm.cli.engine_entries"),
    "show": Action("what an engine was built from, and its files", "edgellm.cli.engine_entries"),
    "explain": Action("why a model would hit or miss, input by input", "edgellm.cli.engine_explain"),
    "verify": Action("compare every byte with what was built", "edgellm.cli.engine_entries"),
    "prune": Action("remove the least recently used beyond the cap", "edgellm.cli.engine_removal"),
    "clear": Action("remove engines: those named, or all", "edgellm.cli.engine_removal"),
    "pin": Action("keep an engine from being evicted", "edgellm.cli.engine_removal"),
    "unpin": Action("let an engine be evicted again", "edgellm.cli.engine_removal"),
    "export": Action("write an engine, and what it needs, into one file", "edgellm.cli.engine_archive"),
    "import": Action(
        "check an archive of edgellm engine export, and take its engine into the store", "edgellm.cli.engine_archive"
    ),
    "keygen": Action("make a key that archives are signed with", "edgellm.cli.engine_archive"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    from edgellm.config import Settings

    actions = parser.add_subparsers(dest="action", metavar="|".join(ACTIONS), required=True)
    for name, action in ACTIONS.items():
        child = actions.add_parser(name, help=action.summary, description=f"{action.summary.capitalize()}.")
        action.load().configure(name, child)
        child.add_argument("--json", action="store_true", help="print JSON")
        add_config_option(child)
        add_setting_options(child.add_argument_group("store"), _OPTIONS, Settings)


def run(namespace: argparse.Namespace) -> int:
    from edgellm.cli.engine_context import open_context

    return ACTIONS[namespace.action].load().run(namespace, open_context(namespace))
