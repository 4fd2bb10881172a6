"""A folder of a device on a disk of its own with little room, and what was in it still there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.lab.device import Device

ASIDE = "/mnt/small-disk"


@contextmanager
def small_disk(device: Device, folder: str, size: str) -> Iterator[None]:
    """``size`` is tmpfs's, such as 64m. What is in the folder lies on another disk."""
    device.run("mkdir", "-p", folder)
    device.run("mount", "--mkdir", "--bind", folder, ASIDE)
    # Else what is mounted over the one is over the other as well.
    device.run("mount", "--make-private", ASIDE)
    device.run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder)
    try:
        for name in device.run("ls", ASIDE).output.split():
            device.run("mount", "--mkdir", "--bind", f"{ASIDE}/{name}", f"{folder}/{name}")
        yield
    finally:
        # What serves may have files of it open.
        device.run("umount", "--recursive", "--lazy", folder)
        device.run("umount", ASIDE)
