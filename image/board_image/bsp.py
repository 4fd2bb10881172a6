"""BspFolder: NVIDIA's Linux_for_Tegra on the flashing host, and what must be so before a board is flashed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from board_image.board import Bsp
from edgellm.errors import ConfigError, HostSpaceError

RELEASE_FILES = ("rootfs/etc/nv_tegra_release", "nv_tegra/bsp_version")
APPLIED_MARKS = ("rootfs/etc/nv_tegra_release", "rootfs/etc/passwd")
FIRST_PERSON_ID = 1_000
LAST_PERSON_ID = 59_999
BYTES_PER_GB = 10**9
TEXT_BYTES_MAX = 65_536
_RELEASE = re.compile(r"#\s*R(\d+)\s*\(release\),\s*REVISION:\s*(\d+)((?:\.\d+)*)")
_UBUNTU = re.compile(r'^VERSION_ID="?([0-9.]+)"?$', re.MULTILINE)

ListUsb = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and what was found."""

    what: str
    found: str


@dataclass(frozen=True, slots=True)
class BspFolder:
    path: Path

    @property
    def rootfs(self) -> Path:
        return self.path / "rootfs"

    def release(self) -> str:
        """Of the root file system, as ``39.2``. Raises ConfigError where it was not made ready."""
        text = _text(self.rootfs / "etc/nv_tegra_release")
        found = _RELEASE.match(text)
        if found is None:
            raise ConfigError(
                f"{self.rootfs}/etc/nv_tegra_release does not name a release: NVIDIA's files are not applied — unpack "
                "the sample root file system there and run sudo ./apply_binaries.sh"
            )
        return f"{found[1]}.{found[2]}"

    def check(self, bsp: Bsp) -> list[Finding]:
        """Raises ConfigError for the first thing that is not as the board needs it, with both values."""
        if not (self.path / "flash.sh").is_file():
            raise ConfigError(
                f"{self.path} is no Linux_for_Tegra folder: it has no flash.sh — unpack Jetson_Linux_R{bsp.release}"
            )
        release = self.release()
        if release != bsp.release:
            raise ConfigError(
                f"{self.path} is of release R{release}, and this board needs R{bsp.release} — unpack the BSP of "
                f"R{bsp.release}"
            )
        return [
            Finding("BSP release", f"R{release}"),
            Finding("board configuration", self._configuration(bsp.config)),
            Finding("flashing tool", self._tool(bsp)),
            Finding("root file system", self._root_file_system(bsp)),
            Finding("first user", self._first_user()),
        ]

    def _configuration(self, name: str) -> str:
        if not (self.path / f"{name}.conf").is_file():
            there = sorted(path.stem for path in self.path.glob("*.conf"))
            has = ", ".join(there) or "none"
            raise ConfigError(f"{self.path} has no {name}.conf, which this board needs; it has {has}")
        return f"{name}.conf"

    def _tool(self, bsp: Bsp) -> str:
        tool = self.path / bsp.flash[0]
        if not tool.is_file() or not tool.stat().st_mode & 0o100:
            raise ConfigError(f"{tool} is not there, or may not be run — unpack the BSP anew, as root")
        return str(tool)

    def _root_file_system(self, bsp: Bsp) -> str:
        release = _text(self.rootfs / "etc/os-release") or _text(self.rootfs / "usr/lib/os-release")
        found = _UBUNTU.search(release)
        present = f"ubuntu-{found[1]}" if found else "unknown"
        if present != bsp.rootfs:
            raise ConfigError(f"{self.rootfs} is {present}, and this board needs {bsp.rootfs}")
        return present

    def _first_user(self) -> str:
        """Without one NVIDIA's set-up assistant waits for a person at the first boot."""
        for line in _text(self.rootfs / "etc/passwd").splitlines():
            fields = line.split(":")
            if len(fields) > 2 and fields[2].isdigit() and FIRST_PERSON_ID <= int(fields[2]) <= LAST_PERSON_ID:
                return fields[0]
        raise ConfigError(
            f"{self.rootfs}/etc/passwd has no user: the board would wait for one at its first boot — run sudo "
            f"{self.path}/tools/l4t_create_default_user.sh -u NAME -a --accept-license"
        )


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def check_space(folder: Path, bsp: Bsp, image_bytes: int, free: int) -> Finding:
    needed = int(bsp.free_gb * BYTES_PER_GB) + image_bytes
    if free < needed:
        raise HostSpaceError(
            f"{folder} has {free / BYTES_PER_GB:.1f} GB free, and flashing needs {needed / BYTES_PER_GB:.1f} GB — make "
            "room there, or unpack the BSP on another disk"
        )
    return Finding("free space", f"{free / BYTES_PER_GB:.1f} GB of {needed / BYTES_PER_GB:.1f} GB needed")


def list_usb() -> str:
    """Raises ConfigError where the host cannot tell."""
    if shutil.which("lsusb") is None:
        raise ConfigError("lsusb is not on this machine — apt install usbutils")
    return subprocess.run(["lsusb"], capture_output=True, text=True, check=False).stdout  # noqa: S607


def check_recovery_device(bsp: Bsp, listed: str) -> Finding:
    """Exactly one board of this kind in recovery mode."""
    ids = re.findall(r"ID (0955:[0-9a-fA-F]{4})", listed)
    fitting = [one for one in ids if one.lower() in bsp.usb_ids]
    if len(fitting) > 1:
        raise ConfigError(f"{len(fitting)} boards are in recovery mode ({', '.join(fitting)}) — leave one connected")
    if not fitting:
        seen = f"NVIDIA's devices here are {', '.join(ids)}" if ids else "no device of NVIDIA's is seen"
        raise ConfigError(
            f"no board of this kind is in recovery mode: {' or '.join(bsp.usb_ids)} is needed, and {seen} — hold "
            "RECOVERY while the board is powered on, and connect its USB port for flashing"
        )
    return Finding("board in recovery mode", fitting[0])


def flash_command(bsp: Bsp) -> Sequence[str]:
    return [word.format(config=bsp.config) for word in bsp.flash]


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(TEXT_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""
