"""Fixtures that tests on devices share; a conftest imports those that it wants."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.lab.bridge import Bridge
from tests.lab.container_image import BuiltImage, built_image
from tests.lab.device import Device
from tests.lab.needs import missing_for_devices, need
from tests.lab.podman import missing_podman
from tests.lab.rootfs import (
    CONTAINER_DEVICE_PACKAGES,
    CONTAINER_SUITE,
    device_rootfs,
)

MakeDevice = Callable[..., Device]


@pytest.fixture(scope="session")
def rootfs() -> Path:
    """Skips where there can be none; the gate has what it takes."""
    need(missing_for_devices())
    return device_rootfs()


@pytest.fixture(scope="session")
def container_rootfs(rootfs: Path) -> Path:
    """Of devices that run containers: ``make_device("name", container_rootfs, runs_containers=True)``. The environment
    may name the folder of another one, which has systemd and podman: that of a board, or of an older release."""
    if folder := os.environ.get("EDGELLM_CONTAINER_ROOTFS"):
        return Path(folder)
    return device_rootfs(CONTAINER_DEVICE_PACKAGES, CONTAINER_SUITE)


@pytest.fixture(scope="session")
def container_image(rootfs: Path) -> Iterator[BuiltImage]:
    """Of this checkout. Skips where it cannot be built; the gate has what it takes."""
    need(missing_podman())
    with built_image() as image:
        yield image


@pytest.fixture(scope="session")
def image_archive(container_image: BuiltImage) -> Path:
    """For ``podman load`` on a device."""
    return container_image.archive()


@pytest.fixture(scope="session")
def device_folder(rootfs: Path) -> Iterator[Path]:
    """Where devices keep what they write."""
    with tempfile.TemporaryDirectory(prefix="edgellm-devices-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def make_device(rootfs: Path, device_folder: Path) -> Iterator[MakeDevice]:
    """``make_device("name")``: a device that is not booted yet and gone when the module's tests are done; over another
    root file system where one is given."""
    made: list[Device] = []

    def make(
        name: str,
        lower: Path = rootfs,
        *,
        read_only: Mapping[str, Path] | None = None,
        runs_containers: bool = False,
        has_terminal: bool = False,
        bridge: Bridge | None = None,
    ) -> Device:
        device = Device(
            name,
            device_folder / name,
            lower,
            read_only=read_only,
            runs_containers=runs_containers,
            has_terminal=has_terminal,
            bridge=bridge,
        )
        made.append(device)
        return device

    try:
        yield make
    finally:
        for device in made:
            device.remove()
