"""Devices that cannot serve say why, once, with an exit code of its own, and are not started over and over."""

from __future__ import annotations

import json

import pytest
from tests.models.tiny_checkpoints import VARIANTS
from tests.models.tiny_gguf import write_gguf
from tests.service.appliance import PREWARM, UNIT, Appliance
from tests.service.conftest import MakeAppliance
from tests.unit.systemd.test_device_facts import ORIN_NX, write_files

FACTS_UNIT = "edgellm-device-facts.service"


@pytest.fixture(scope="module")
def appliance(make_appliance: MakeAppliance) -> Appliance:
    made = make_appliance("refusals", with_model=False).boot()
    made.install()
    return made


def start_and_fail(appliance: Appliance, unit: str = UNIT) -> dict[str, str]:
    appliance.device.run("systemctl", "reset-failed", unit, check=False)
    appliance.device.run("systemctl", "start", unit, check=False)
    state = appliance.wait_until_failed(unit)
    assert state["NRestarts"] == "0"
    return state


def complaint(appliance: Appliance, unit: str = UNIT) -> str:
    """The one line of the last start that is an error."""
    invocation = appliance.state(unit)["InvocationID"]
    printed = appliance.device.journal("", f"_SYSTEMD_INVOCATION_ID={invocation}", "--priority=err")
    (line,) = printed.splitlines()
    return line


def test_a_model_that_is_not_there(appliance: Appliance) -> None:
    assert start_and_fail(appliance)["ExecMainStatus"] == "66"
    assert complaint(appliance).startswith("edgellm: the model smollm2-135m-instruct is not on this machine yet")


def test_prewarming_without_a_network_is_tried_again_later(appliance: Appliance) -> None:
    appliance.device.run("systemctl", "start", PREWARM, check=False)
    state = appliance.state(PREWARM)
    assert (state["ActiveState"], state["SubState"]) == ("activating", "auto-restart")
    assert state["ExecMainStatus"] == "75"
    appliance.device.run("systemctl", "stop", PREWARM)


def test_a_jetson_without_its_gpu(appliance: Appliance) -> None:
    write_files(appliance.device.root / "srv/orin", ORIN_NX)
    command = "/usr/local/lib/edgellm/device-facts --root /srv/orin --output /run/edgellm/device.json"
    appliance.drop_in("board", f"[Service]\nExecStart=\nExecStart={command}\n", FACTS_UNIT)
    appliance.device.run("systemctl", "restart", FACTS_UNIT)
    assert json.loads(appliance.device.read("/run/edgellm/device.json"))["module"] == "Orin NX 16GB"
    write_gguf(appliance.device.root / "srv/tiny.gguf", VARIANTS["llama"])
    appliance.configure('[[models]]\nsource = "/srv/tiny.gguf"\n')
    try:
        state = start_and_fail(appliance)
        assert state["ExecMainStatus"] == "68"
        assert "Orin NX 16GB" in complaint(appliance)
        assert state["StatusText"] == complaint(appliance).removeprefix("edgellm: ")
        assert start_and_fail(appliance, PREWARM)["ExecMainStatus"] == "68"
        # The board comes back as no Jetson: the declaration goes with it.
        appliance.drop_in("board", "", FACTS_UNIT)
        appliance.device.run("systemctl", "restart", FACTS_UNIT)
        assert appliance.device.run("test", "-e", "/run/edgellm/device.json", check=False).code == 1
    finally:
        appliance.configure("")


def test_keys_that_were_not_made_yet(appliance: Appliance) -> None:
    appliance.configure('[server]\napi_keys_file = "/run/credentials/edgellm.service/api-keys"\n')
    try:
        assert start_and_fail(appliance)["ExecMainStatus"] == "78"
        assert "/run/credentials/edgellm.service/api-keys holds no key" in complaint(appliance)
    finally:
        appliance.configure("")


def test_a_port_that_needs_rights(appliance: Appliance) -> None:
    appliance.configure("[server]\nport = 80\n")
    try:
        assert start_and_fail(appliance)["ExecMainStatus"] == "78"
        assert "port 80 needs rights" in complaint(appliance)
    finally:
        appliance.configure("")
