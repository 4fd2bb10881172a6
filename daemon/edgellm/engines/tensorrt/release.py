"""The platform release: the marker by which NVIDIA's loader knows a machine, read in the loader's order.

A machine is known by DRIVE OS, by being an IGX Thor, by Jetson Linux (L4T), by its device model, or by Ubuntu.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_DRIVE_RELEASE = "etc/driveos-release"
_DRIVE_ROOT_VERSION = "etc/nvidia/version-ubuntu-rootfs.txt"
_L4T_RELEASE = "etc/nv_tegra_release"
_OS_RELEASE = "etc/os-release"
_DEVICE_TREE_MODEL = "proc/device-tree/model"
_PRODUCT_NAME = "sys/class/dmi/id/product_name"

IGX_MODELS = ("igx thor",)
SPARK_MODELS = ("dgx spark", "gb10")

_DRIVE_VERSION = re.compile(r"\b(\d+\.\d+)(?:\.\d+)*\b")
_L4T = (
    re.compile(r"R(?P<major>\d+)\s*\(release\).*?REVISION:\s*(?P<minor>\d+)(?P<patch>(?:\.\d+)*)"),
    re.compile(r"R(?P<major>\d+)\.(?P<minor>\d+)(?P<patch>(?:\.\d+)*)"),
)


@dataclass(frozen=True, slots=True)
class PlatformRelease:
    """``source`` is driveos, l4t, device-model or os-release, ``value`` what it says; "" where nothing is known.

    ``problem`` says why a marker that is there could not be read. ``l4t_full`` has the patch level that ``value``
    leaves out.
    """

    source: str = ""
    value: str = ""
    problem: str = ""
    l4t_full: str = ""

    @property
    def l4t(self) -> str | None:
        return self.value if self.source == "l4t" else None


def read_release(root: Path, cpu_arch: str) -> PlatformRelease:
    """Read the markers below ``root``, which is / but for tests. ``cpu_arch`` is x86_64 or aarch64."""
    model = _device_model(root)
    drive = _drive(root, model)
    if drive is not None:
        return drive
    if _is_one_of(model, IGX_MODELS):
        return PlatformRelease("device-model", model)
    l4t = _l4t(root)
    if l4t is not None:
        return l4t
    if model:
        return PlatformRelease("device-model", model)
    system = _key_values(root / _OS_RELEASE)
    if cpu_arch == "x86_64" and system.get("ID") == "ubuntu":
        return PlatformRelease("os-release", f"ubuntu:{system.get('VERSION_ID', 'unknown')}")
    named = system.get("PRETTY_NAME") or system.get("ID") or "no release marker"
    return PlatformRelease(problem=f"NVIDIA's package knows no such platform ({named})")


def _drive(root: Path, model: str) -> PlatformRelease | None:
    values = _key_values(root / _DRIVE_RELEASE)
    text = values.get("VERSION_ID", values.get("VERSION", ""))
    if not text:
        if _is_one_of(model, (*SPARK_MODELS, *IGX_MODELS)) or not (root / _DRIVE_ROOT_VERSION).is_file():
            return None
        text = _text(root / _DRIVE_ROOT_VERSION)
    version = _DRIVE_VERSION.search(text)
    if version is None:
        return PlatformRelease(problem="the release marker of DRIVE OS has no version")
    return PlatformRelease("driveos", version[1])


def _l4t(root: Path) -> PlatformRelease | None:
    path = root / _L4T_RELEASE
    if not path.is_file():
        return None
    text = _text(path)
    found = next((match for pattern in _L4T if (match := pattern.search(text))), None)
    if found is None:
        return PlatformRelease(problem=f"/{_L4T_RELEASE} names no release of Jetson Linux")
    value = f"R{int(found['major'])}.{int(found['minor'])}"
    return PlatformRelease("l4t", value, l4t_full=value + found["patch"])


def _device_model(root: Path) -> str:
    path = root / _DEVICE_TREE_MODEL
    if path.is_file():
        model = _text(path).strip("\0\n ")
        if model:
            return model
    # Machines that are described by firmware tables instead; any other product name is that of a PC.
    path = root / _PRODUCT_NAME
    name = re.sub(r"[_-]+", " ", _text(path).strip()) if path.is_file() else ""
    return name if _is_one_of(name, (*SPARK_MODELS, *IGX_MODELS)) else ""


def _is_one_of(model: str, markers: tuple[str, ...]) -> bool:
    return any(marker in model.casefold() for marker in markers)


def _key_values(path: Path) -> Mapping[str, str]:
    values = {}
    for line in _text(path).splitlines() if path.is_file() else ():
        key, equals, value = line.partition("=")
        if equals and not line.lstrip().startswith("#"):
            values[key.strip()] = value.strip().strip('"')
    return values


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
