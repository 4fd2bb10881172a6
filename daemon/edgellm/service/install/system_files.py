"""The files of each mode, as they are to lie on a system: the folder `systemd` of the source, or of the wheel.

That folder mirrors the target: `both` is for every installation, `venv` and `container` for one mode each, `venv-gpu`
for a venv with a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import edgellm
from edgellm.errors import ConfigError
from edgellm.host.installed_files import HOST_TOOL
from edgellm.host.target import Target
from edgellm.service.install.host_tool import host_tool

EXECUTABLE_FOLDERS = ("usr/local/bin/", "usr/local/lib/edgellm/")
README = "usr/local/lib/edgellm/README.md"
GPU_GROUPS = ("video", "render")


class Mode(Enum):
    VENV = "venv"
    CONTAINER = "container"

    @property
    def other(self) -> Mode:
        return Mode.CONTAINER if self is Mode.VENV else Mode.VENV


@dataclass(frozen=True, slots=True)
class SystemFile:
    """``is_theirs``: made where it is missing, then the operator's."""

    content: bytes
    mode: int = 0o644
    is_theirs: bool = False


def source_folder() -> Path:
    """Where the files are: beside the modules in an installed wheel, else in the checkout."""
    package = Path(edgellm.__file__).parent
    for folder in (package / "systemd", package.parents[1] / "systemd"):
        if (folder / "both").is_dir():
            return folder
    raise ConfigError(f"{package} has no unit files — install edgellm from its wheel, or run it from its source")


def system_files(mode: Mode, target: Target, *, gpu: bool) -> Mapping[str, SystemFile]:
    """Every file by its name below the root."""
    source = source_folder()
    layers = ["both", mode.value] + (["venv-gpu"] if gpu and mode is Mode.VENV else [])
    files = {}
    for layer in layers:
        for path in sorted((source / layer).rglob("*")):
            if path.is_file():
                name = path.relative_to(source / layer).as_posix()
                content = path.read_bytes()
                if path.suffix == ".container":
                    content = "".join(_fitting(content.decode(), target, gpu=gpu)).encode()
                files[name] = SystemFile(content, _mode_of(name), name.startswith("etc/edgellm/"))
    files[README] = SystemFile((source / "README.md").read_bytes())
    files[HOST_TOOL] = SystemFile(host_tool())
    return files


def _mode_of(name: str) -> int:
    return 0o755 if name.startswith(EXECUTABLE_FOLDERS) and "." not in Path(name).name else 0o644


def _fitting(text: str, target: Target, *, gpu: bool) -> Iterator[str]:
    """The lines of a Quadlet file that fit the machine: podman refuses devices and mounts that are not there."""
    for line in text.splitlines(keepends=True):
        if line.startswith("AddDevice=") and not gpu:
            continue
        if line.startswith("Volume=/etc/nv_tegra_release") and not target.is_jetson:
            continue
        if line.startswith("PodmanArgs=--group-add"):
            numbers = [target.number_of_group(name) for name in GPU_GROUPS] if gpu else []
            groups = [f"--group-add={number}" for number in numbers if number is not None]
            if groups:
                yield f"PodmanArgs={' '.join(groups)}\n"
            continue
        yield line
