"""Boards that run the image: from an archive where no registry is in reach, and from a registry."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.conftest import FLEET_PACKAGES
from tests.fleet.control_host import API_KEY, FAILED, ControlHost
from tests.fleet.fleet import CLIENT, MODELS, SERVICE, SETTINGS, SHORT_CHAT
from tests.image.image_releases import ImageReleases
from tests.lab.bridge import Bridge
from tests.lab.container_image import BuiltImage
from tests.lab.device import Device
from tests.lab.podman import Podman
from tests.lab.rootfs import CONTAINER_DEVICE_PACKAGES, extended_rootfs
from tests.service.conftest import Say
from tests.service.container_appliance import LAB_QUADLET
from tests.service.release_wheels import other_engines

import edgellm

pytestmark = pytest.mark.thorough
REGISTRY_PACKAGES = ("docker-registry",)
REGISTRY_PORT = 5000
REGISTRY_CONFIGURATION = f"""version: 0.1
storage:
  filesystem:
    rootdirectory: /var/lib/docker-registry
http:
  addr: :{REGISTRY_PORT}
"""
LATER = "0.9.0"
REGISTRY_IMAGE = f"registry.invalid/edgellm@sha256:{'0' * 64}"


@dataclass(frozen=True, slots=True)
class ContainerBoard:
    control: ControlHost
    device: Device
    variables: dict[str, Any]


@pytest.fixture(scope="module")
def make_board(
    container_rootfs: Path, image_archive: Path, fleet_folder: Path, bridge: Bridge, model_folder: Path
) -> Iterator[Callable[..., ContainerBoard]]:
    """``make_board("name", edgellm_image=…)``: booted and bare. Podman is there, nothing of edgellm. One ``beside``
    another is of the same control host, and has no model."""
    rootfs = extended_rootfs(container_rootfs, sorted({*FLEET_PACKAGES} - {*CONTAINER_DEVICE_PACKAGES}))
    made: list[Device] = []

    def make(
        name: str, files: Mapping[str, str] | None = None, beside: ContainerBoard | None = None, **release: str
    ) -> ContainerBoard:
        control = ControlHost(fleet_folder / f"control-of-{name}", bridge) if beside is None else beside.control
        if beside is None:
            control.install_collection()
        read_only = {f"{MODELS}/{model_folder.name}": model_folder} if beside is None else {}
        device = Device(name, fleet_folder / name, rootfs, read_only=read_only, runs_containers=True, bridge=bridge)
        made.append(device)
        control.admit(device)
        for unit in ("edgellm", "edgellm-prewarm"):
            device.write(f"/etc/containers/systemd/{unit}.container.d/lab.conf", LAB_QUADLET)
        for path, text in (files or {}).items():
            device.write(path, text)
        device.boot()
        variables = {
            "edgellm_mode": "container",
            "edgellm_settings": SETTINGS,
            "edgellm_api_keys": [{"name": CLIENT, "key": API_KEY}],
            "edgellm_tls": "made",
            "preflight_disk_free_min_mib": 512,
            **(release if beside is None else beside.variables),
        }
        control.write_inventory(variables)
        return ContainerBoard(control, device, variables)

    try:
        yield make
    finally:
        for device in made:
            device.remove()


@pytest.fixture(scope="module")
def board(make_board: Callable[..., ContainerBoard], image_archive: Path) -> ContainerBoard:
    """From an archive, since it reaches no registry."""
    with image_archive.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return make_board("quad1", edgellm_image_archive=str(image_archive), edgellm_image_archive_sha256=digest)


@pytest.fixture
def registry(rootfs: Path, fleet_folder: Path, bridge: Bridge) -> Iterator[Device]:
    """A device with Debian's registry, on the boards' network."""
    device = Device("registry1", fleet_folder / "registry1", extended_rootfs(rootfs, REGISTRY_PACKAGES), bridge=bridge)
    try:
        device.write("/etc/docker/registry/config.yml", REGISTRY_CONFIGURATION)
        yield device.boot()
    finally:
        device.remove()


def push(image: BuiltImage, registry: Device, bridge: Bridge, folder: Path) -> str:
    """What a board is to install: the image's name in the registry, with the digest that it has there."""
    name, digest = f"{registry.address}:{REGISTRY_PORT}/edgellm", folder / "digest"
    podman = Podman(folder / "store", image.images)
    try:
        podman.call(
            *(*bridge.enter(), "podman", "push", "--quiet", "--tls-verify=false", f"--digestfile={digest}"),
            *(image.name, f"docker://{name}:pushed"),
        )
    finally:
        podman.remove()
    return f"{name}@{digest.read_text().strip()}"


def test_a_registry_out_of_reach_is_told_and_installs_nothing(board: ContainerBoard) -> None:
    chosen = {"edgellm_image": REGISTRY_IMAGE, "edgellm_image_archive": ""}
    played = board.control.play("provision", variables=chosen)
    assert played.recap[board.device.name].failed == 1
    assert "registry.invalid" in played.output
    assert board.device.run("test", "-e", "/usr/local/bin/edgellm", check=False).code == 1


def test_an_archive_of_another_digest_is_refused(board: ContainerBoard) -> None:
    played = board.control.play("provision", variables={"edgellm_image_archive_sha256": "0" * 64})
    assert (played.code, played.recap[board.device.name].changed) == (FAILED, 0)
    digest = board.variables["edgellm_image_archive_sha256"]
    assert f"has the SHA-256 {digest}, and edgellm_image_archive_sha256 is {'0' * 64}" in played.output
    assert board.device.run("podman", "image", "ls", "--quiet").output == ""


def test_an_archive_makes_a_board_serve_and_the_second_run_changes_nothing(board: ContainerBoard, say: Say) -> None:
    played = board.control.play("provision")
    assert played.code == 0, f"{played.output[-6000:]}\n{board.device.journal('', '--lines=60')}"
    authority = board.control.home / f".cache/edgellm/fleet/authorities/{board.device.name}.crt"
    url = "/v1/chat/completions"
    answer = board.control.ask(board.device, url, body=SHORT_CHAT, authority=authority)
    assert answer.status_code == 200
    assert board.device.unit(SERVICE, "Type")["Type"] == "notify"
    again = board.control.play("provision")
    assert again.code == 0, again.output[-3000:]
    assert again.recap[board.device.name].changed == 0, again.changed_tasks
    say(f"container board from bare: {played.seconds:.0f} s; second converge: {again.seconds:.0f} s")


def test_the_board_s_container_is_in_the_table(board: ContainerBoard) -> None:
    played = board.control.play("verify")
    assert played.code == 0, played.output
    row = played.table_row(board.device.name)
    digest = board.device.run(
        *["podman", "image", "inspect", "--format", "{{.Digest}}", "localhost/edgellm:current"]
    ).output
    assert (row["ready"], row["engines"], row["image"]) == ("yes", "1", digest.strip()[: len(row["image"])])
    assert row["image"].startswith("sha256:")


def test_an_image_that_needs_other_engines_has_one_built_for_two_boards(
    board: ContainerBoard,
    make_board: Callable[..., ContainerBoard],
    container_image: BuiltImage,
    fleet_folder: Path,
    say: Say,
) -> None:
    second = make_board("quad3", beside=board)
    devices = (board.device, second.device)
    added = board.control.play("provision", limit=[second.device.name])
    assert added.code == 0, added.output[-6000:]
    assert "engines: imported" in added.output  # of the first board, which this run is not about
    podman = Podman(fleet_folder / "release-store", container_image.images)
    try:
        releases = ImageReleases(podman, container_image.name, fleet_folder / "image-releases")
        later = releases.archive("later", LATER, other_engines(2))
    finally:
        podman.remove()
    before = [engines_of(device) for device in devices]
    played = board.control.play("rollout", variables={"rollout_source": str(later), "rollout_gateways": []})
    assert played.code == 0, f"{played.output[-6000:]}\n{second.device.journal('', '--lines=60')}"
    for device in devices:
        assert device.run("podman", "exec", "edgellm", "edgellm", "--version").output.split()[-1] == LATER
    # One that each had built for itself would have another time in it.
    brought = [engines_of(device).items() - old.items() for device, old in zip(devices, before, strict=True)]
    assert len(brought[0]) == 1
    assert brought[0] == brought[1]
    say(f"rollout of an image to 2 boards, one engine built: {played.seconds:.0f} s")
    back = board.control.play("rollback", variables={"rollout_gateways": []})
    assert back.code == 0, back.output[-6000:]
    assert {device.run("podman", "exec", "edgellm", "edgellm", "--version").output for device in devices} == {
        f"edgellm {edgellm.__version__}\n"
    }


def engines_of(device: Device) -> dict[str, str]:
    """The time at which each engine was built, by its key."""
    listed = json.loads(device.run("edgellm", "engine", "list", "--json").output)
    return {row["key"]: row["created"] for row in listed}


def test_an_image_comes_from_a_registry_by_its_digest(
    make_board: Callable[..., ContainerBoard],
    container_image: BuiltImage,
    registry: Device,
    bridge: Bridge,
    fleet_folder: Path,
) -> None:
    folder = fleet_folder / "pushed"
    folder.mkdir()
    image = push(container_image, registry, bridge, folder)
    location = image.partition("/")[0]
    trusted = {
        "/etc/containers/registries.conf.d/lab.conf": f'[[registry]]\nlocation = "{location}"\ninsecure = true\n'
    }
    board = make_board("quad2", trusted, edgellm_image=image)
    absent = image.partition("@")[0] + f"@sha256:{'0' * 64}"
    refused = board.control.play("provision", variables={"edgellm_image": absent})
    assert refused.code == FAILED
    assert "manifest unknown" in refused.output
    played = board.control.play("provision")
    assert played.code == 0, f"{played.output[-6000:]}\n{board.device.journal('', '--lines=60')}"
    inspect = ("podman", "image", "inspect", "--format", "{{.Digest}}", "localhost/edgellm:current")
    assert board.device.run(*inspect).output.strip() == image.partition("@")[2]
    authority = board.control.home / f".cache/edgellm/fleet/authorities/{board.device.name}.crt"
    answer = board.control.ask(board.device, "/v1/chat/completions", body=SHORT_CHAT, authority=authority)
    assert answer.status_code == 200
    again = board.control.play("provision")
    assert again.code == 0, again.output[-3000:]
    assert again.recap[board.device.name].changed == 0, again.changed_tasks
