"""``edgellm install``: units, user and folders of the service, in one mode of two."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgellm.host.container_releases import CURRENT
from edgellm.host.target_commands import TargetCommands, add_target_options, note, show_changes, target_of

if TYPE_CHECKING:
    from edgellm.service.install import Mode, SystemFile, Target

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


def run(namespace: argparse.Namespace) -> int:
    from edgellm.service.install import Mode, install_files, podman_refusal, refusal_of, system_files

    mode, target, dry_run = Mode(namespace.mode), target_of(namespace), bool(namespace.dry_run)
    gpu = target.has_gpu if namespace.gpu == "auto" else namespace.gpu == "yes"
    if gpu and mode is Mode.CONTAINER and (refusal := refusal_of(target)):
        note(refusal)  # a board's own first boot may still write the spec
    files = system_files(mode, target, gpu=gpu)
    changes = install_files(mode, target, files, dry_run=dry_run)
    show_changes(changes, dry_run=dry_run)
    commands = TargetCommands(target, dry_run=dry_run, note=note)
    _make_it_count(mode, target, files, commands)
    for missing in _missing(mode, target, commands, podman_refusal):
        note(missing)
    commands.require_none_failed()
    gpu_text = "with a GPU" if gpu else "without a GPU"
    done = "nothing changed" if not changes else "would be installed" if dry_run else "installed"
    print(f"{mode.value}, {gpu_text}: {done}")
    return 0


def _make_it_count(mode: Mode, target: Target, files: Mapping[str, SystemFile], commands: TargetCommands) -> None:
    """A Quadlet is enabled by its own [Install] section, never by systemctl."""
    from edgellm.service.install import note_enabled, units_to_enable

    commands.run_for_root("systemd-sysusers", *_files_in("sysusers.d", files))
    commands.run_for_root("systemd-tmpfiles", "--create", *_files_in("tmpfiles.d", files))
    units = units_to_enable(mode, target, [*UNITS, *HOST_UNITS] if mode.value == "venv" else HOST_UNITS)
    for masked in filter(target.is_masked, units):
        note(f"{masked} is masked, and was not enabled — systemctl unmask {masked}, then run this again")
    units = [unit for unit in units if not target.is_masked(unit)]
    if units and commands.run_for_root("systemctl", "--quiet", "enable", *units):
        note_enabled(mode, target, files, units)
    if target.is_running_systemd:
        commands.run("systemctl", "daemon-reload")


def _missing(
    mode: Mode, target: Target, commands: TargetCommands, podman_refusal: Callable[[Target], str]
) -> Iterator[str]:
    """What the service cannot start without, and what brings it."""
    if mode.value == "venv":
        if not target.path(VENV_COMMAND).exists():
            yield (
                f"/{VENV_COMMAND} is not there yet, and the service cannot start without it — "
                "first python3 -m venv /opt/edgellm, then pip install edgellm into it"
            )
    elif refusal := podman_refusal(target):
        yield refusal
    elif target.is_this_system and (said := commands.ask("podman", "image", "exists", CURRENT)) and said.code == 1:
        yield (
            f"the image {CURRENT} is not there yet, and the service cannot start without it — "
            f"podman load --input ARCHIVE, then podman tag IMAGE {CURRENT}"
        )


def _files_in(folder: str, names: Iterable[str]) -> list[str]:
    return [path.name for path in map(Path, names) if path.parent.name == folder]
