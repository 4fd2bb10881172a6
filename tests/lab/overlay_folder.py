"""Folders that hold the layers of overlays: a file system of their own in a file, where that around them cannot."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.lab.rootfs import check_output

# The file grows with what is in it.
SIZE_BYTES_MAX = 24 << 30


class OverlayFolder:
    """``path`` is there, and overlays can lie in it where this machine has a way to that: ``takes_overlays``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._disk = path.with_name(f"{path.name}.ext4")
        path.mkdir(parents=True, exist_ok=True)
        self.takes_overlays = takes_overlays(path)
        if not self.takes_overlays and self._mount_disk():
            self.takes_overlays = takes_overlays(path)

    def _mount_disk(self) -> bool:
        if shutil.which("mkfs.ext4") is None:
            return False
        if not self._disk.exists():
            unfinished = self._disk.with_suffix(".unfinished")
            with unfinished.open("wb") as file:
                file.truncate(SIZE_BYTES_MAX)
            check_output(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(unfinished)])
            unfinished.rename(self._disk)
        mount = ["mount", "-o", "loop", str(self._disk), str(self.path)]
        return subprocess.run(mount, capture_output=True, check=False).returncode == 0

    def unmount(self) -> None:
        """What is in it stays; one made of the same path finds it again."""
        unmount_below(self.path)

    def remove(self) -> None:
        self.unmount()
        check_output(["rm", "-rf", "--one-file-system", str(self.path), str(self._disk)])


def takes_overlays(folder: Path) -> bool:
    """Not where the folder lies on an overlay itself."""
    tried = folder / "tried-overlay"
    shutil.rmtree(tried, ignore_errors=True)
    for part in ("lower", "upper", "work", "merged"):
        (tried / part).mkdir(parents=True)
    options = f"lowerdir={tried}/lower,upperdir={tried}/upper,workdir={tried}/work"
    mount = ["mount", "-t", "overlay", "-o", options, "overlay", str(tried / "merged")]
    takes = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    if takes:
        check_output(["umount", str(tried / "merged")])
    shutil.rmtree(tried)
    return takes


def unmount_below(folder: Path) -> None:
    """The folder itself too, where it is a mount."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in reversed([mount for mount in mounts if Path(mount).is_relative_to(folder)]):
        check_output(["umount", mount])
