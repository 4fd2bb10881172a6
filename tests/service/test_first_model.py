"""A new device has no model yet: it comes from an index of packages, or from a hub that asks for a token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.hub.hub_server import KNOWN_USER, HubServer, hub_server
from tests.lab.fixtures import MakeDevice
from tests.lab.forwarding import listen_inside
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.service.appliance import PREWARM, READY_SECONDS, Appliance
from tests.service.conftest import MakeAppliance
from tests.service.container_appliance import ContainerAppliance
from tests.service.model_index import DEFAULT_MODEL, model_index

INDEX_PORT, HUB_PORT = 9101, 9102
HUB_ID = "tiny-org/tiny-model"
CREDENTIAL = "/etc/edgellm/credentials/hub-token"

MakeWithoutModel = Callable[[], Appliance]


@pytest.fixture(scope="module", params=["venv", "container"])
def appliance(request: pytest.FixtureRequest, make_appliance: MakeAppliance, make_device: MakeDevice) -> Appliance:
    """Installed, with nothing to serve."""
    if request.param == "venv":
        made = make_appliance("new", with_model=False).boot()
    else:
        rootfs, archive = request.getfixturevalue("container_rootfs"), request.getfixturevalue("image_archive")
        container = ContainerAppliance.make_with_image(make_device, "new-container", rootfs, archive, None)
        made = container.boot()
        container.load()
    made.device.write("/etc/hosts", "127.0.0.1 localhost\n")  # the hub's second host
    made.install()
    return made


@pytest.fixture
def hub(appliance: Appliance, tmp_path: Path) -> Iterator[HubServer]:
    checkpoint = write_checkpoint(tmp_path / "tiny", VARIANTS["llama-bf16-sharded"])
    with hub_server(listen_inside(appliance.device, HUB_PORT)) as server:
        server.repository(HUB_ID, {path.name: path.read_bytes() for path in checkpoint.iterdir()}, gated=True)
        yield server


def prewarm(appliance: Appliance, **variables: str) -> str:
    """What the prewarming said; it may have failed."""
    lines = "".join(f"Environment={name}={value}\n" for name, value in variables.items())
    appliance.drop_in("sources", f"[Service]\n{lines}", PREWARM)
    appliance.device.run("systemctl", "restart", PREWARM, check=False, deadline_seconds=READY_SECONDS)
    return appliance.journal(PREWARM)


def test_without_a_network_it_says_what_is_missing(appliance: Appliance) -> None:
    said = prewarm(appliance, PIP_RETRIES="0", PIP_TIMEOUT="1")
    assert appliance.state(PREWARM)["ExecMainStatus"] == "75"
    assert f"cannot download {DEFAULT_MODEL.name}" in said
    assert "Check the network, or pip's index and proxy settings" in said


def test_the_default_model_comes_from_the_index(appliance: Appliance, tmp_path: Path, model_folder: Path) -> None:
    with model_index(appliance.device, INDEX_PORT, tmp_path, model_folder) as url:
        said = prewarm(appliance, PIP_INDEX_URL=url)
    assert appliance.is_active(PREWARM), said
    appliance.start()
    assert appliance.chat().status_code == 200


def test_a_model_behind_a_token_comes_from_the_hub(appliance: Appliance, hub: HubServer) -> None:
    appliance.configure(f'[[models]]\nsource = "{HUB_ID}"\n')
    said = prewarm(appliance, HF_ENDPOINT=hub.url)
    assert not appliance.is_active(PREWARM)
    assert "token" in said, said
    appliance.device.write(CREDENTIAL, f"{KNOWN_USER}\n", 0o640)
    appliance.device.run("chgrp", "edgellm", CREDENTIAL)
    said = prewarm(appliance, HF_ENDPOINT=hub.url)
    assert appliance.is_active(PREWARM), said
    assert KNOWN_USER in {seen.token for seen in hub.requests}
    assert KNOWN_USER not in said


def test_the_command_of_the_host_has_the_token_too(appliance: Appliance, hub: HubServer) -> None:
    hub.repository("tiny-org/another", hub.repositories[HUB_ID].files_at("main")[1], gated=True)  # type: ignore[index]
    appliance.device.write(CREDENTIAL, f"{KNOWN_USER}\n", 0o640)
    appliance.device.run("chgrp", "edgellm", CREDENTIAL)
    edgellm = ("env", f"HF_ENDPOINT={hub.url}", "/usr/local/bin/edgellm")
    appliance.device.run(*edgellm, "engine", "build", "tiny-org/another", deadline_seconds=READY_SECONDS)
    assert KNOWN_USER in {seen.token for seen in hub.saw("another")}
