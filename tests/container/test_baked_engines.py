"""An image that brings its engines along: a layer of their own, read in place, and no build where it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.container.running import RunningContainer, running
from tests.lab.container_image import CURRENT, BuiltImage, build, compiled_module
from tests.lab.podman import Podman

BAKED = "/usr/share/edgellm/engines"
MODEL = "smollm2-135m-instruct"


@pytest.fixture(scope="module")
def engines(podman: Podman, image: str, model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the image itself builds them, owned by its user."""
    folder = tmp_path_factory.mktemp("built")
    with running(podman, image, "edgellm-building", folder / "edgellm", model_folder):
        pass
    (folder / "engines").mkdir()
    (built,) = [manifest.parent for manifest in folder.glob("edgellm/engines/*/manifest.json")]
    return built.rename(folder / "engines" / built.name).parent


@pytest.fixture(scope="module")
def server(
    container_image: BuiltImage, engines: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningContainer]:
    """Without a model, and not allowed to build."""
    folder = tmp_path_factory.mktemp("baked")
    podman = Podman(folder / "store", container_image.images)
    try:
        build(podman, native=compiled_module(), engines=engines)
        with running(podman, CURRENT, "edgellm-baked", folder / "edgellm", None, "--no-build-on-start") as found:
            yield found
    finally:
        podman.remove()


def test_it_serves_without_a_model_and_builds_nothing(server: RunningContainer) -> None:
    assert server.is_ready()
    assert list((server.state / "engines").glob("*/manifest.json")) == []
    assert MODEL in server.podman.run("exec", server.name, "edgellm", "engine", "list").stdout


def test_they_are_a_layer_of_their_own_that_nobody_may_change(server: RunningContainer, engines: Path) -> None:
    history = json.loads(server.podman.run("history", "--no-trunc", "--format=json", CURRENT).stdout)
    (size_bytes,) = [one["size"] for one in history if BAKED in one["CreatedBy"] and "COPY" in one["CreatedBy"]]
    assert size_bytes >= sum(file.stat().st_size for file in engines.rglob("*") if file.is_file())
    of_others = ("find", BAKED, "!", "-user", "root", "-o", "-perm", "/022")
    assert server.podman.run("exec", server.name, *of_others).stdout == ""
