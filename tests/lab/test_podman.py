"""What tests with podman rely on: a store that is quick wherever it lies, and images that several stores share."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab.needs import need
from tests.lab.overlay_folder import takes_overlays, unmount_below
from tests.lab.podman import Podman, missing_podman
from tests.lab.rootfs import check_output

NAME = "localhost/small:current"


@pytest.fixture(autouse=True)
def needs_podman() -> None:
    need(missing_podman())


@pytest.fixture
def folder_on_an_overlay(tmp_path: Path) -> Iterator[Path]:
    """As all folders are where this machine is a container itself."""
    parts = {part: tmp_path / "overlay" / part for part in ("lower", "upper", "work", "merged")}
    for path in parts.values():
        path.mkdir(parents=True)
    if takes_overlays(parts["merged"]):
        options = f"lowerdir={parts['lower']},upperdir={parts['upper']},workdir={parts['work']}"
        check_output(["mount", "-t", "overlay", "-o", options, "overlay", str(parts["merged"])])
    yield parts["merged"]
    unmount_below(parts["merged"])


def load_small_image(podman: Podman) -> None:
    file = podman.folder / "small.tar"
    with tarfile.open(file, "w") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    podman.run("import", "--quiet", str(file), NAME)


def driver(podman: Podman) -> str:
    return podman.run("info", "--format={{.Store.GraphDriverName}}").stdout.strip()


def test_layers_are_not_copied_where_the_folder_lies_on_an_overlay(folder_on_an_overlay: Path) -> None:
    podman = Podman(folder_on_an_overlay / "store")
    try:
        assert not takes_overlays(folder_on_an_overlay)
        assert driver(podman) == "overlay"
        load_small_image(podman)
        podman.unmount()
        again = Podman(folder_on_an_overlay / "store")
        assert again.run("image", "exists", NAME).returncode == 0
    finally:
        podman.remove()
    assert list(folder_on_an_overlay.iterdir()) == []


def test_a_store_sees_the_images_of_another_and_leaves_them_alone(tmp_path: Path) -> None:
    shared = Podman(tmp_path / "shared")
    own = Podman(tmp_path / "own", shared.images)
    try:
        load_small_image(shared)
        assert own.inspect("image", NAME)["RepoTags"] == [NAME]
        assert own.run("rmi", NAME, check=False).returncode != 0
        own.remove()
        assert shared.run("image", "exists", NAME).returncode == 0
    finally:
        shared.remove()
