"""A device's own files over a root file system that all share: an overlay, or a copy where there can be none."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.lab.rootfs import check_output


class Layers:
    """``root`` is the whole tree. What the device writes stays in ``folder`` until it is removed."""

    def __init__(self, lower: Path, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir(parents=True)
        self._mounts: list[Path] = []
        if not self._overlay(lower, folder / "own"):
            # The folder lies on an overlay itself: memory can hold what a device writes.
            memory = folder / "memory"
            memory.mkdir()
            check_output(["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(memory)])
            self._mounts.append(memory)
            if not self._overlay(lower, memory):
                check_output(["cp", "-a", "--reflink=auto", f"{lower}/.", str(self.root)])

    def _overlay(self, lower: Path, own: Path) -> bool:
        upper, work = own / "upper", own / "work"
        for part in (upper, work):
            part.mkdir(parents=True, exist_ok=True)
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        mounted = subprocess.run(
            ["mount", "-t", "overlay", "-o", options, "overlay", str(self.root)], capture_output=True, check=False
        )
        if mounted.returncode == 0:
            self._mounts.append(self.root)
        return mounted.returncode == 0

    def remove(self) -> None:
        while self._mounts:
            check_output(["umount", str(self._mounts.pop())])
        check_output(["rm", "-rf", "--one-file-system", str(self.folder)])
