"""One store of podman for the folder, which sees the image of this checkout and the base that it was built on."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.lab.container_image import BuiltImage
from tests.lab.fixtures import container_image, rootfs
from tests.lab.podman import Podman

from edgellm.engines.cache_directory import default_cache_dir, models_dir
from edgellm.engines.source import resolve

__all__ = ["container_image", "rootfs"]

Say = Callable[[str], None]


@pytest.fixture(scope="session")
def podman(container_image: BuiltImage) -> Iterator[Podman]:
    with tempfile.TemporaryDirectory(prefix="edgellm-podman-", dir="/var/tmp") as folder:
        made = Podman(Path(folder) / "store", container_image.images)
        try:
            yield made
        finally:
            made.remove()


@pytest.fixture(scope="session")
def image(container_image: BuiltImage) -> str:
    """Its name."""
    return container_image.name


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """Of the default model, downloaded when it is not there."""
    return resolve("smollm2-135m-instruct", models_dir(default_cache_dir(os.environ))).path.parent


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Prints what was measured: timings are printed, never asserted."""

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", end="")

    return say
