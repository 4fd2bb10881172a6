"""``edgellm install`` and ``edgellm uninstall``: units, user and folders of the service, in one mode of two."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgellm.errors import ConfigError
from edgellm.host.option_types import named_path

if TYPE_CHECKING:
    from edgellm.service.install import Change, Mode, Target

VENV_COMMAND = "opt/edgellm/bin/edgellm"
UNITS = ("edgellm.service", "edgellm-prewarm.service")
HOST_UNITS = ("edgellm-device-facts.service", "edgellm-upgrade-recover.service")  # of every mode


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mode",
        metavar="container|venv",
        choices=("container", "venv"),
        required=True,
        help="container: podman runs the image localhost/edgellm:current; venv: /opt/edgellm is the environment",
    )
    parser.add_argument(
        "--gpu",
        metavar="auto|yes|no",
        choices=("auto", "yes", "no"),
        default="auto",
        help="whether the service may use a GPU of NVIDIA (default: auto, where one is seen)",
    )
    add_target_options(parser)


def add_target_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root", metavar="DIR", type=named_path, default=Path("/"), help="the system to change (default: this one)"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would change, and change nothing")


def run(namespace: argparse.Namespace) -> int:
    from edgellm.service.install import Mode, install_files, refusal_of, system_files

    mode, target = Mode(namespace.mode), target_of(namespace)
    gpu = target.has_gpu if namespace.gpu == "auto" else namespace.gpu == "yes"
    if gpu and mode is Mode.CONTAINER and (refusal := refusal_of(target)):
        _note(refusal)  # a board's own first boot may still write the spec
    files = system_files(mode, target, gpu=gpu)
    changes = install_files(mode, target, files, dry_run=namespace.dry_run)
    show_changes(changes, dry_run=namespace.dry_run)
    run_commands(_commands(mode, target, list(files)), target, dry_run=namespace.dry_run)
    if mode is Mode.VENV and not target.path(VENV_COMMAND).exists():
        _note(
            f"/{VENV_COMMAND} is not there yet, and the service cannot start without it — "
            "first python3 -m venv /opt/edgellm, then pip install edgellm into it"
        )
    gpu_text = "with a GPU" if gpu else "without a GPU"
    done = "nothing changed" if not changes else "would be installed" if namespace.dry_run else "installed"
    print(f"{mode.value}, {gpu_text}: {done}")
    return 0


def target_of(namespace: argparse.Namespace) -> Target:
    from edgellm.service.install import Target

    root: Path = namespace.root
    if not root.is_dir():
        raise ConfigError(f"--root {root} is no folder")
    return Target(root.resolve())


def _commands(mode: Mode, target: Target, names: Sequence[str]) -> list[list[str]]:
    """What makes the files count. A Quadlet is enabled by its own [Install] section, never by systemctl."""
    where = where_of(target)
    units = [*UNITS, *HOST_UNITS] if mode.value == "venv" else HOST_UNITS
    commands = [
        ["systemd-sysusers", *where, *_files_in("sysusers.d", names)],
        ["systemd-tmpfiles", *where, "--create", *_files_in("tmpfiles.d", names)],
        ["systemctl", *where, "--quiet", "enable", *units],
    ]
    return [*commands, ["systemctl", "daemon-reload"]] if target.is_running_systemd else commands


def where_of(target: Target) -> list[str]:
    """What tells systemd's programs which root is meant."""
    return [] if target.is_this_system or target.is_entered else [f"--root={target.root}"]


def _files_in(folder: str, names: Sequence[str]) -> list[str]:
    return [path.name for path in map(Path, names) if path.parent.name == folder]


def show_changes(changes: Iterable[Change], *, dry_run: bool) -> None:
    for change in changes:
        print(f"would be {change}" if dry_run else change)


def run_commands(commands: Sequence[Sequence[str]], target: Target, *, dry_run: bool) -> None:
    """Raises ConfigError with what a command said. One that this machine lacks is left to the operator."""
    # Below a container's /host systemctl is in its own root after all: that of the running system.
    environment = {**os.environ, "SYSTEMD_IGNORE_CHROOT": "1"} if target.is_running_systemd else None
    for command in commands:
        words = ["chroot", str(target.root), *command] if target.is_entered else list(command)
        if dry_run:
            print(f"would run {' '.join(words)}")
        elif shutil.which(words[0]) is None:
            _note(f"{words[0]} is not on this machine — run there: {' '.join(words)}")
        else:
            completed = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)  # noqa: S603
            if completed.returncode != 0:
                said = " ".join(completed.stderr.split())
                raise ConfigError(f"{' '.join(words)} ended with {completed.returncode}: {said}")


def _note(text: str) -> None:
    sys.stderr.write(f"edgellm: {text}\n")
