"""One store of podman for the folder, with the image of this checkout and the base that it was built on."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.lab.fixtures import image_archive, rootfs
from tests.lab.podman import Podman

from edgellm.engines.cache_directory import default_cache_dir, models_dir
from edgellm.engines.source import resolve

__all__ = ["image_archive", "rootfs"]

Say = Callable[[str], None]


@pytest.fixture(scope="session")
def podman(image_archive: Path) -> Iterator[Podman]:
    with tempfile.TemporaryDirectory(prefix="edgellm-podman-", dir="/var/tmp") as folder:
        made = Podman(Path(folder) / "store")
        try:
            made.run("load", "--quiet", f"--input={image_archive}")
            yield made
        finally:
            made.remove()


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
