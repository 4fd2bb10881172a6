"""``edgellm uninstall``: takes the units off again. Configuration, credentials, models and the user stay."""

from __future__ import annotations

import argparse

from edgellm.host.target_commands import TargetCommands, add_target_options, note, show_changes, target_of
from edgellm.host.uninstall import uninstall


def configure(parser: argparse.ArgumentParser) -> None:
    add_target_options(parser)


def run(namespace: argparse.Namespace) -> int:
    target, dry_run = target_of(namespace), bool(namespace.dry_run)
    commands = TargetCommands(target, dry_run=dry_run, note=note)
    show_changes(uninstall(target, commands, dry_run=dry_run), dry_run=dry_run)
    commands.require_none_failed()
    return 0
