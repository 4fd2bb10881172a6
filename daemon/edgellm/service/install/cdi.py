"""CDI: the files that tell podman what a GPU is made of, and whether the podman that is here can read them.

nvidia-container-toolkit writes them. From 1.19.1 on it uses fields of CDI 0.7, which podman 4 refuses: it then knows no
device of that file at all, and every container with a GPU fails to start.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgellm.errors import ConfigError
from edgellm.host.target import Target

FOLDERS = ("etc/cdi", "run/cdi")
SUFFIXES = (".json", ".yaml")
GPU_DEVICE = "nvidia.com/gpu=all"
FILE_BYTES_MAX = 4_194_304
VERSION_DEADLINE_SECONDS = 10.0
PACKAGES = "var/lib/dpkg/status"
# The newest that podman 4 reads, by https://github.com/cncf-tags/container-device-interface. It knows no other fields.
OLD_VERSION = (0, 6, 0)
FIRST_MODERN_PODMAN = (5,)
OLDEST_PODMAN = (4, 9)
_EDITS: Mapping[str, object] = {
    "env": None,
    "deviceNodes": dict.fromkeys(
        ("path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid")
    ),
    "hooks": dict.fromkeys(("hookName", "path", "args", "env", "timeout")),
    "mounts": dict.fromkeys(("hostPath", "containerPath", "options", "type")),
}
OLD_FIELDS: Mapping[str, object] = {
    "cdiVersion": None,
    "kind": None,
    "annotations": None,
    "devices": {"name": None, "annotations": None, "containerEdits": _EDITS},
    "containerEdits": _EDITS,
}
REMEDY = (
    "write it anew with nvidia-ctk cdi generate --feature-flag=no-additional-gids-for-device-nodes --output={path}, "
    "or install nvidia-container-toolkit 1.18.2, or podman 5"
)


@dataclass(frozen=True, slots=True)
class CdiSpec:
    """``devices`` are full names. ``new_fields`` are those that CDI 0.6 does not have, each by its name, once."""

    path: Path
    version: tuple[int, ...]
    devices: tuple[str, ...]
    new_fields: tuple[str, ...]

    @property
    def is_readable_by_podman_4(self) -> bool:
        return self.version <= OLD_VERSION and not self.new_fields

    def __str__(self) -> str:
        fields = f" with {', '.join(self.new_fields)}" if self.new_fields else ""
        return f"{self.path} (CDI {_dotted(self.version)}{fields})"


def read_spec(path: Path, shown: Path | None = None) -> CdiSpec:
    """``shown`` is its name for messages. Raises ConfigError for a file that is no spec."""
    import yaml  # here: images and bundles are made with the standard library alone

    shown = shown or path
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{shown}: {error.strerror} — run as root") from None
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"{shown} is larger than {FILE_BYTES_MAX} bytes, and no CDI spec")
    try:
        spec = json.loads(content) if path.suffix == ".json" else yaml.safe_load(content)
        version = tuple(map(int, str(spec["cdiVersion"]).removeprefix("v").split(".")))
        devices = tuple(f"{spec['kind']}={device['name']}" for device in spec["devices"])
    except (ValueError, KeyError, TypeError, RecursionError, yaml.YAMLError):
        raise ConfigError(f"{shown} is no CDI spec — write it anew with nvidia-ctk cdi generate") from None
    return CdiSpec(shown, version, devices, tuple(dict.fromkeys(_unknown(spec, OLD_FIELDS))))


def _unknown(value: Any, known: Mapping[str, object]) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _unknown(one, known)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in known:
                yield str(name)
            elif isinstance(below := known[name], dict):
                yield from _unknown(inner, below)


def specs_of(target: Target) -> list[CdiSpec]:
    """Every spec that podman would read there. Raises ConfigError for one that is none."""
    return [
        read_spec(target.path(f"{folder}/{found.name}"), target.shown(f"{folder}/{found.name}"))
        for folder in FOLDERS
        for found in sorted(target.path(folder).glob("*"))
        if found.suffix in SUFFIXES
    ]


def podman_version(target: Target) -> tuple[int, ...] | None:
    """By the program itself, or by the package where the target does not run; None where there is none."""
    if target.is_this_system:
        if shutil.which("podman") is None:
            return None
        said = subprocess.run(  # no text from elsewhere
            ["podman", "--version"],  # noqa: S607
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=VERSION_DEADLINE_SECONDS,
        ).stdout
    else:
        try:
            packages = target.path(PACKAGES).read_text(encoding="utf-8", errors="replace").split("\n\n")
        except OSError:
            return None
        said = next((one for one in packages if one.startswith("Package: podman\n")), "")
        said = said.partition("\nVersion:")[2]
    found = re.search(r"\d+(?:\.\d+)+", said)
    return tuple(map(int, found.group().split("."))) if found else None


def podman_refusal(target: Target) -> str:
    """Why there can be no container, with the remedy; "" where nothing stands in the way that can be seen."""
    needed = f"{_dotted(OLDEST_PODMAN)} or newer"
    if not target.has_program("podman"):
        return f"podman is not there yet, and the service cannot start without it — apt install podman, {needed}"
    version = podman_version(target)
    if version is not None and version < OLDEST_PODMAN:
        return f"podman {_dotted(version)} is too old for the units, so that there is no service — {needed} is needed"
    return ""


def refusal_of(target: Target) -> str:
    """Why podman there does not give a container its GPU, with the remedy; "" where nothing stands in the way."""
    specs, version = specs_of(target), podman_version(target)
    for spec in specs:
        if version and version < FIRST_MODERN_PODMAN and not spec.is_readable_by_podman_4:
            return (
                f"podman {_dotted(version)} cannot read {spec}, as nvidia-container-toolkit from 1.19.1 on writes it — "
                + REMEDY.format(path=spec.path)
            )
    if not any(GPU_DEVICE in spec.devices for spec in specs):
        looked = " or ".join(f"/{folder}" for folder in FOLDERS)
        return f"no CDI spec in {looked} has {GPU_DEVICE} — nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    return ""


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
