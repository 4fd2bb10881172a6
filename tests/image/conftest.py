"""Inputs for images, small where nothing is to run, and whole where a board is to boot from them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab.bridge import Bridge
from tests.lab.fixtures import (
    container_image,
    container_rootfs,
    device_folder,
    image_archive,
    make_device,
    rootfs,
)
from tests.lab.rootfs import extended_rootfs
from tests.service.conftest import model_folder, releases, say, wheel

__all__ = ["container_image", "container_rootfs", "device_folder", "image_archive", "make_device", "model_folder"]
__all__ += ["releases", "rootfs", "say", "wheel"]

BOARD_PACKAGES = ("openssh-server", "avahi-daemon", "avahi-utils")


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Two wheels in name and form."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in ("edgellm-0.1.0-cp312-cp312-linux_x86_64.whl", "jinja2-3.1.6-py3-none-any.whl"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr(zipfile.ZipInfo("module.py"), f"# {name}\n")
    return folder


@pytest.fixture(scope="session")
def board_rootfs(rootfs: Path) -> Path:
    """With what boards have that bare devices lack: an ssh server, and avahi."""
    return extended_rootfs(rootfs, BOARD_PACKAGES)


@pytest.fixture(scope="session")
def network(device_folder: Path) -> Iterator[Bridge]:
    made = Bridge(device_folder.name).up()
    yield made
    made.remove()
