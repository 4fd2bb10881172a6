"""Grows the root partition and its file system to the size of the disk, where that can be."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgellm.errors import FirstBootError
from edgellm.host.commands import Said, attempt
from edgellm.host.paths import HostPaths

GROWPART_NOTHING_TO_DO = 1  # its exit code
Run = Callable[[Sequence[str]], Said]
Has = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class RootPartition:
    """``number`` is None where the file system lies on a whole disk."""

    device: str
    disk: str
    number: int | None
    kind: str


def grow_root(
    paths: HostPaths, run: Run = attempt, has: Callable[[str], bool] = lambda name: bool(shutil.which(name))
) -> str:
    """What came of it, for people. Raises FirstBootError where a tool failed that should have worked."""
    partition = root_partition(paths)
    if partition is None:
        return "the root file system lies on no disk of its own: nothing to grow"
    grow = _growing_command(partition)
    if grow is None:
        return f"{partition.kind} on {partition.device} is left as it is: not known how to grow it"
    if not has(grow[0]):
        return f"{grow[0]} is not on this machine: the file system is left as it is"
    if partition.number is not None:
        if not has("growpart"):
            return "growpart is not on this machine (package cloud-guest-utils): the partition is left as it is"
        said = run(["growpart", partition.disk, str(partition.number)])
        if said.code not in (0, GROWPART_NOTHING_TO_DO):
            raise FirstBootError(f"growpart {partition.disk} {partition.number}: {said.last_words}")
    said = run(grow)
    if said.code != 0:
        raise FirstBootError(f"{' '.join(grow)}: {said.last_words}")
    return f"{partition.kind} on {partition.device} fills its disk"


def root_partition(paths: HostPaths) -> RootPartition | None:
    """By the kernel's own tables; None for overlays, folders and network file systems."""
    for line in _read(paths.at("proc/self/mountinfo")).splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) > 4 and fields[4] == "/" and fields[3] == "/" and len(rest) > 1:
            return _partition(paths, fields[2], rest[0])
    return None


def _partition(paths: HostPaths, number: str, kind: str) -> RootPartition | None:
    block = paths.at(f"sys/dev/block/{number}")
    if not re.fullmatch(r"\d+:\d+", number) or not block.exists():
        return None
    folder = Path(os.path.realpath(block))
    index = _read(folder / "partition").strip()
    if not index.isdecimal():
        return RootPartition(f"/dev/{folder.name}", f"/dev/{folder.name}", None, kind)
    return RootPartition(f"/dev/{folder.name}", f"/dev/{folder.parent.name}", int(index), kind)


def _growing_command(partition: RootPartition) -> list[str] | None:
    match partition.kind:
        case "ext2" | "ext3" | "ext4":
            return ["resize2fs", partition.device]
        case "xfs":
            return ["xfs_growfs", "/"]
        case "btrfs":
            return ["btrfs", "filesystem", "resize", "max", "/"]
        case _:
            return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
