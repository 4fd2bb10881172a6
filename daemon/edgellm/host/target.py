"""Target: the system that is installed onto, which may be a folder that a device will boot from."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from edgellm.errors import ConfigError

GPU_DEVICES = ("dev/nvidiactl", "dev/nvhost-ctrl-gpu", "dev/nvgpu", "dev/nvmap")
TEGRA_RELEASE = "etc/nv_tegra_release"
OWN_PROGRAM = "systemd-sysusers"
PROGRAM_FOLDERS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
UNIT_OVERRIDES = ("etc/systemd/system", "run/systemd/system")  # an administrator's own, before those of ours
LINKS_MAX = 40  # as the kernel follows


@dataclass(frozen=True, slots=True)
class Target:
    """``root`` is / for this system itself."""

    root: Path = Path("/")

    def path(self, name: str) -> Path:
        """Where its links lead, in that root and never out of it. Raises ConfigError for links that lead nowhere."""
        return self._resolved(name, follow_last=True)

    def entry(self, name: str) -> Path:
        """The link itself where the last part is one: what is replaced or removed."""
        return self._resolved(name, follow_last=False)

    def shown(self, name: str) -> Path:
        """As whoever reads it has it, who knows nothing of a folder that a container sees the host in."""
        return (Path("/") if self.is_host else self.root) / name.lstrip("/")

    def _resolved(self, name: str, *, follow_last: bool) -> Path:
        left, found, links = name.split("/")[::-1], list[str](), 0
        while left:
            part = left.pop()
            if part in ("", "."):
                continue
            if part == "..":
                del found[-1:]
                continue
            link = _link(self.root.joinpath(*found, part)) if left or follow_last else None
            if link is None:
                found.append(part)
                continue
            links += 1
            if links > LINKS_MAX:
                raise ConfigError(f"{self.shown(name)}: {os.strerror(errno.ELOOP)}")
            if link.startswith("/"):
                found.clear()
            left += link.split("/")[::-1]
        return self.root.joinpath(*found)

    @property
    def is_this_system(self) -> bool:
        return self.root == Path("/")

    @property
    def is_host(self) -> bool:
        """The system that runs here, in its own root or seen from a container."""
        return self.is_this_system or self.is_running_systemd

    def has_program(self, name: str) -> bool:
        if self.is_this_system:
            return shutil.which(name) is not None
        return any(self.path(f"{folder}/{name}").is_file() for folder in PROGRAM_FOLDERS)

    def is_masked(self, unit: str) -> bool:
        """As systemd sees it: a link to nothing, or an empty file, in the place of the unit."""
        for folder in UNIT_OVERRIDES:
            path = self.entry(f"{folder}/{unit}")
            if _link(path) == "/dev/null" or (path.is_file() and not path.is_symlink() and path.stat().st_size == 0):
                return True
        return False

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


def _link(path: Path) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None  # no link, or not there
