"""Podman on this machine with images, containers and settings of its own; the machine's are not touched."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.lab.overlay_folder import OverlayFolder, unmount_below
from tests.lab.privileges import missing_privileges
from tests.lab.rootfs import check_output

COMMAND_DEADLINE_SECONDS = 300.0
CGROUP_CONTROLLERS = Path("/sys/fs/cgroup/cgroup.controllers")  # there with version 2 alone


def missing_podman() -> str:
    """What this machine lacks to build and run containers, or ""."""
    if missing := missing_privileges():
        return missing
    absent = [program for program in ("podman", "runc") if shutil.which(program) is None]
    return f"needs {' and '.join(absent)}" if absent else ""


class Podman:
    """Keeps all that it makes in ``folder`` until ``remove``. Images of the store ``images`` are there too, to read."""

    def __init__(self, folder: Path, images: Path | None = None) -> None:
        self.folder = folder
        self._layers = OverlayFolder(folder / "root")
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"},
            "CONTAINERS_CONF": str(self._write("containers.conf", _configuration())),
            "CONTAINERS_STORAGE_CONF": str(self._write("storage.conf", self._storage(images))),
        }

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    @property
    def images(self) -> Path:
        """For others to read."""
        return self._layers.path

    def _storage(self, images: Path | None) -> str:
        driver = "overlay" if self._layers.takes_overlays else "vfs"
        return (
            f'[storage]\ndriver = "{driver}"\ngraphroot = "{self.images}"\nrunroot = "{self.folder / "run"}"\n'
            f"[storage.options]\nadditionalimagestores = [{'' if images is None else json.dumps(str(images))}]\n"
        )

    def run(
        self,
        *arguments: str,
        check: bool = True,
        environment: Mapping[str, str] | None = None,
        deadline_seconds: float = COMMAND_DEADLINE_SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        return self.call("podman", *arguments, check=check, environment=environment, deadline_seconds=deadline_seconds)

    def call(
        self,
        *command: str,
        check: bool = True,
        environment: Mapping[str, str] | None = None,
        deadline_seconds: float = COMMAND_DEADLINE_SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """A program that calls podman itself."""
        completed = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**self.environment, **(environment or {})},
            timeout=deadline_seconds,
            check=False,
        )
        if check:
            said = f"{completed.stdout[-3000:]}\n{completed.stderr[-6000:]}"
            assert completed.returncode == 0, f"{' '.join(command)}:\n{said}"
        return completed

    def run_once(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A container that is gone when its command ends, without a network: this machine may have no tools for one."""
        return self.run("run", "--rm", "--no-healthcheck", "--network=none", *arguments, check=check)

    def inspect(self, kind: str, name: str) -> dict[str, Any]:
        """Of an image or a container."""
        (found,) = json.loads(self.run(kind, "inspect", name).stdout)
        return dict(found)

    def remove(self) -> None:
        self.unmount()
        self._layers.remove()
        check_output(["rm", "-rf", "--one-file-system", str(self.folder)])

    def unmount(self) -> None:
        """End all that runs; images stay."""
        self.run("rm", "--all", "--force", "--time=0", check=False)
        unmount_below(self.folder)


def _configuration() -> str:
    """Limits that this machine can give, and a runtime that works with its control groups."""
    limits = [
        f'"{name}={min(_hard_limit(number), 4096)}:{min(_hard_limit(number), 4096)}"'
        for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC))
    ]
    runtime = "" if CGROUP_CONTROLLERS.exists() else 'runtime = "runc"\n'
    return (
        f"[containers]\ndefault_ulimits = [{', '.join(limits)}]\n"
        f'[engine]\n{runtime}cgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
    )


def _hard_limit(number: int) -> int:
    hard = resource.getrlimit(number)[1]
    return 1 << 20 if hard == resource.RLIM_INFINITY else hard
