"""Target: the system that is installed onto, which may be a folder that a device will boot from."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

GPU_DEVICES = ("dev/nvidiactl", "dev/nvhost-ctrl-gpu", "dev/nvgpu", "dev/nvmap")
TEGRA_RELEASE = "etc/nv_tegra_release"
OWN_PROGRAM = "systemd-sysusers"


@dataclass(frozen=True, slots=True)
class Target:
    """``root`` is / for this system itself."""

    root: Path = Path("/")

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    @property
    def is_this_system(self) -> bool:
        return self.root == Path("/")

    @property
    def is_running_systemd(self) -> bool:
        """Also from a container that has the host's root below a folder."""
        return self.path("run/systemd/system").is_dir()

    @property
    def is_entered(self) -> bool:
        """Its own programs are run, in its own root: an image lacks them, the host that it installs onto does not."""
        there, here = self.path(f"usr/bin/{OWN_PROGRAM}"), shutil.which(OWN_PROGRAM)
        return not self.is_this_system and here is None and os.path.lexists(there) and os.geteuid() == 0

    @property
    def is_jetson(self) -> bool:
        return self.path(TEGRA_RELEASE).exists()

    @property
    def has_gpu(self) -> bool:
        """A GPU of NVIDIA, as far as can be seen: a folder has no devices."""
        return self.is_jetson or (self.is_this_system and any(self.path(name).exists() for name in GPU_DEVICES))

    def number_of_group(self, name: str) -> int | None:
        return self._number("etc/group", name)

    def number_of_user(self, name: str) -> int | None:
        return self._number("etc/passwd", name)

    def user_of_number(self, number: int) -> str | None:
        return next((name for name, its in self._rows("etc/passwd") if its == number), None)

    def _number(self, file: str, name: str) -> int | None:
        return next((number for its, number in self._rows(file) if its == name), None)

    def _rows(self, file: str) -> list[tuple[str, int]]:
        try:
            lines = self.path(file).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        fields = [line.split(":") for line in lines]
        return [(row[0], int(row[2])) for row in fields if len(row) > 3 and row[2].isdigit()]
