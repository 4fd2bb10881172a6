"""How much memory a new process could still use: the machine's estimate, and every cgroup limit above this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

MemoryReader = Callable[[], int | None]
"""Bytes that can be used without pushing others out, None where this machine does not say."""

MEMINFO_FILE = Path("/proc/meminfo")
CGROUP_FILE = Path("/proc/self/cgroup")
CGROUP_ROOT = Path("/sys/fs/cgroup")
# What the kernel takes back under pressure counts as free, as it does in MemAvailable.
_RECLAIMABLE = ("active_file", "inactive_file", "slab_reclaimable")


def available_memory_bytes(
    meminfo: Path = MEMINFO_FILE, cgroup: Path = CGROUP_FILE, cgroup_root: Path = CGROUP_ROOT
) -> int | None:
    known = [value for value in (_of_machine(meminfo), *_of_cgroups(cgroup, cgroup_root)) if value is not None]
    return min(known, default=None)


def _of_machine(meminfo: Path) -> int | None:
    for line in _lines(meminfo):
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            kib = rest.split()[0] if rest.split() else ""
            return int(kib) * 1024 if kib.isdecimal() else None
    return None


def _of_cgroups(cgroup: Path, root: Path) -> list[int]:
    """What each limited group from this process's up to the root leaves; cgroup version 2."""
    path = next((line.removeprefix("0::") for line in _lines(cgroup) if line.startswith("0::")), None)
    if path is None or ".." in path.split("/"):
        return []
    folder = root / path.lstrip("/")
    left: list[int] = []
    while True:
        limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
        if limit is not None and used is not None:
            fields = (line.split() for line in _lines(folder / "memory.stat"))
            reclaimable = sum(int(field[1]) for field in fields if len(field) == 2 and field[0] in _RECLAIMABLE)
            left.append(max(0, limit - used + min(used, reclaimable)))
        if folder == root or root not in folder.parents:
            return left
        folder = folder.parent


def _number(path: Path) -> int | None:
    text = "".join(_lines(path))
    return int(text) if text.isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
