"""Devices that edgellm is installed on; each module has its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.lab.fixtures import (
    MakeDevice,
    container_image,
    container_rootfs,
    device_folder,
    image_archive,
    make_device,
    rootfs,
)
from tests.lab.needs import missing_python, need
from tests.lab.wheels import build_wheel
from tests.service.appliance import Appliance
from tests.service.release_wheels import ReleaseWheels

from edgellm.engines.cache_directory import default_cache_dir, models_dir
from edgellm.engines.source import resolve

__all__ = ["container_image", "container_rootfs", "device_folder", "image_archive", "make_device", "rootfs"]

MakeAppliance = Callable[..., Appliance]
Say = Callable[[str], None]


@pytest.fixture(scope="session")
def wheel(rootfs: Path, device_folder: Path) -> Path:
    """Of this checkout, without its C++ part. Skips where this environment's packages are for another Python than the
    devices'."""
    need(missing_python())
    return build_wheel(device_folder / "wheel")


@pytest.fixture(scope="session")
def releases(wheel: Path, device_folder: Path) -> ReleaseWheels:
    return ReleaseWheels(wheel, device_folder / "releases")


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """Of the default model, downloaded when it is not there."""
    return resolve("smollm2-135m-instruct", models_dir(default_cache_dir(os.environ))).path.parent


@pytest.fixture(scope="module")
def make_appliance(make_device: MakeDevice, wheel: Path, model_folder: Path) -> MakeAppliance:
    """``make_appliance("name")``: not booted yet; ``with_model=False`` for one without the default model."""

    def make(name: str, *, with_model: bool = True, more: Mapping[str, Path] | None = None) -> Appliance:
        return Appliance.make(make_device, name, wheel, model_folder if with_model else None, more)

    return make


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Prints what was measured: timings are printed, never asserted."""

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", end="")

    return say
