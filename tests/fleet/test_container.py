"""A board that runs the image: provisioned from an archive, since it reaches no registry."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.conftest import FLEET_PACKAGES
from tests.fleet.control_host import API_KEY, ControlHost
from tests.fleet.fleet import CLIENT, MODELS, SERVICE, SETTINGS, SHORT_CHAT
from tests.lab.bridge import Bridge
from tests.lab.device import Device
from tests.lab.rootfs import CONTAINER_DEVICE_PACKAGES, extended_rootfs
from tests.service.conftest import Say
from tests.service.container_appliance import LAB_QUADLET

pytestmark = pytest.mark.thorough
REGISTRY_IMAGE = f"registry.invalid/edgellm@sha256:{'0' * 64}"


@dataclass(frozen=True, slots=True)
class ContainerBoard:
    control: ControlHost
    device: Device
    variables: dict[str, Any]


@pytest.fixture(scope="module")
def board(
    container_rootfs: Path, image_archive: Path, fleet_folder: Path, bridge: Bridge, model_folder: Path
) -> Iterator[ContainerBoard]:
    """Booted and bare: podman is there, nothing of edgellm."""
    rootfs = extended_rootfs(container_rootfs, sorted({*FLEET_PACKAGES} - {*CONTAINER_DEVICE_PACKAGES}))
    control = ControlHost(fleet_folder / "container", bridge)
    control.install_collection()
    read_only = {f"{MODELS}/{model_folder.name}": model_folder}
    device = Device("quad1", fleet_folder / "quad1", rootfs, read_only=read_only, runs_containers=True, bridge=bridge)
    try:
        control.admit(device)
        for unit in ("edgellm", "edgellm-prewarm"):
            device.write(f"/etc/containers/systemd/{unit}.container.d/lab.conf", LAB_QUADLET)
        device.boot()
        with image_archive.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        variables = {
            "edgellm_mode": "container",
            "edgellm_image_archive": str(image_archive),
            "edgellm_image_archive_sha256": digest,
            "edgellm_settings": SETTINGS,
            "edgellm_api_keys": [{"name": CLIENT, "key": API_KEY}],
            "edgellm_tls": "made",
            "preflight_disk_free_min_mib": 512,
        }
        control.write_inventory(variables)
        yield ContainerBoard(control, device, variables)
    finally:
        device.remove()


def test_a_registry_out_of_reach_is_told_and_installs_nothing(board: ContainerBoard) -> None:
    chosen = {"edgellm_image": REGISTRY_IMAGE, "edgellm_image_archive": ""}
    played = board.control.play("provision", variables=chosen)
    assert played.recap[board.device.name].failed == 1
    assert "registry.invalid" in played.output
    assert board.device.run("test", "-e", "/usr/local/bin/edgellm", check=False).code == 1


def test_an_archive_of_another_digest_is_refused(board: ContainerBoard) -> None:
    played = board.control.play("provision", variables={"edgellm_image_archive_sha256": "0" * 64})
    assert played.recap[board.device.name].failed == 1
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
