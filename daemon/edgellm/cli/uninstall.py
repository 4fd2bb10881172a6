"""``edgellm uninstall``: takes the units off again. Configuration, credentials, models and the user stay."""

from __future__ import annotations

import argparse

from edgellm.cli.install import HOST_UNITS, UNITS, add_target_options, run_commands, show_changes, target_of, where_of


def configure(parser: argparse.ArgumentParser) -> None:
    add_target_options(parser)


def run(namespace: argparse.Namespace) -> int:
    from edgellm.service.install import Mode, installed_mode, remove_files

    target = target_of(namespace)
    mode = installed_mode(target)
    if mode is not None:
        units = [*UNITS, *HOST_UNITS] if mode is Mode.VENV else HOST_UNITS
        commands = [["systemctl", *where_of(target), "--quiet", "disable", *units]]
        if target.is_running_systemd:
            commands.insert(0, ["systemctl", "stop", *UNITS])
        run_commands(commands, target, dry_run=namespace.dry_run)
    show_changes(remove_files(target, dry_run=namespace.dry_run), dry_run=namespace.dry_run)
    if target.is_running_systemd:
        run_commands([["systemctl", "daemon-reload"]], target, dry_run=namespace.dry_run)
    return 0
