"""Where a device's processes go: control groups of its own, so that its limits hold and it can be ended whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
OWN_GROUPS = Path("/proc/self/cgroup")
FOLDER = "edgellm-lab"
EMPTY_DEADLINE_SECONDS = 30.0
# Version 1 controllers that systemd sets limits with; a device sees those of them that have a hierarchy here.
LIMITING = ("memory", "cpu", "pids")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mounted hierarchy and this process's group in it; ``name`` is the controller's, "" for version 2."""

    name: str
    mount: Path
    own: Path


def hierarchies() -> list[Hierarchy]:
    own = {}
    for line in OWN_GROUPS.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller.removeprefix("name=")] = path.lstrip("/")
    return [Hierarchy(name, mount, mount / own[name]) for name, mount in _mounts() if name in own]


def _mounts() -> Iterator[tuple[str, Path]]:
    for line in MOUNTS.read_text().splitlines():
        _, mount, kind, options, *_ = line.split()
        if kind == "cgroup2":
            yield "", Path(mount)
        elif kind == "cgroup":
            names = {option.removeprefix("name=") for option in options.split(",")}
            for name in names & {"systemd", *LIMITING}:
                yield name, Path(mount)


def make_groups(device: str, *, version_2_alone: bool = False) -> list[Path]:
    """One group in every hierarchy. On pure version 2 the parent hands its controllers on."""
    groups = []
    for hierarchy in hierarchies():
        if hierarchy.name and version_2_alone:
            continue
        parent = hierarchy.own / FOLDER
        group = parent / device
        group.mkdir(parents=True, exist_ok=True)
        if not hierarchy.name:
            _hand_on(hierarchy.own, parent)
        groups.append(group)
    return groups


def _hand_on(own: Path, parent: Path) -> None:
    for group in (own, parent):
        controllers = (group / "cgroup.controllers").read_text().split()
        for controller in controllers:
            try:
                (group / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError:  # a group with processes cannot: limits are then found not to hold
                return


def remove_groups(groups: list[Path]) -> None:
    """A process that ended leaves its group a moment later."""
    deadline = time.monotonic() + EMPTY_DEADLINE_SECONDS
    for group in groups:
        while group.is_dir():
            try:
                for folder in sorted(group.rglob("*"), reverse=True):
                    if folder.is_dir():
                        folder.rmdir()
                group.rmdir()
            except OSError:
                assert time.monotonic() < deadline, f"{group}: processes are left"
                time.sleep(0.02)
        with suppress(OSError):  # other devices run
            group.parent.rmdir()
