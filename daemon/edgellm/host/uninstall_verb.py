"""``edgellm uninstall``: takes the units off again. Configuration, credentials, models and the user stay."""

from __future__ import annotations

import argparse
import os
from contextlib import nullcontext

from edgellm.errors import ConfigError
from edgellm.host.host_state import HostState
from edgellm.host.paths import HostPaths
from edgellm.host.target_commands import TargetCommands, add_target_options, note, show_changes, target_of
from edgellm.host.uninstall import uninstall


def configure(parser: argparse.ArgumentParser) -> None:
    add_target_options(parser)


def run(namespace: argparse.Namespace) -> int:
    target, dry_run = target_of(namespace), bool(namespace.dry_run)
    if target.is_host and not dry_run and os.geteuid() != 0:
        raise ConfigError("edgellm uninstall changes the system — run it as root")
    commands = TargetCommands(target, dry_run=dry_run, note=note)
    # Not while an upgrade is at it, which would bring back what is removed.
    is_alone = nullcontext() if dry_run or not target.is_host else HostState(HostPaths(target.root)).locked()
    with is_alone:
        show_changes(uninstall(target, commands, dry_run=dry_run), dry_run=dry_run)
    if commands.problems:
        raise ConfigError(f"edgellm is removed, but {'; '.join(commands.problems)}")
    return 0
