"""An image that holds edgellm as a container: its first boot, a client that pairs, and a later boot."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.http.test_command import edgellm
from tests.image.board_device import FIRST_BOOT, BoardDevice
from tests.lab.bridge import Bridge
from tests.lab.fixtures import MakeDevice
from tests.service.appliance import UNIT
from tests.service.conftest import Say

from board_image.assembly import assemble
from board_image.board import read_board
from board_image.contents import Inputs
from edgellm.host.first_boot_state import BootStep

pytestmark = [pytest.mark.system, pytest.mark.thorough]


@pytest.fixture(scope="module")
def board(
    make_device: MakeDevice,
    container_rootfs: Path,
    image_archive: Path,
    model_folder: Path,
    device_folder: Path,
    network: Bridge,
) -> BoardDevice:
    """Not booted yet."""
    image = device_folder / "container-image"
    assemble(read_board("generic-x86_64"), Inputs(container=image_archive, models=[model_folder]), image)
    return BoardDevice(make_device, "quadlet", container_rootfs, image, network, runs_containers=True)


def test_a_board_with_a_container_serves_a_paired_client_and_stays_itself(
    board: BoardDevice, tmp_path: Path, say: Say
) -> None:
    board.boot()
    steps = board.steps()
    assert {name: step["state"] for name, step in steps.items()} == {step.value: "done" for step in BootStep}
    seconds = {name: step["seconds"] for name, step in steps.items()}
    say(f"first boot with a container {sum(seconds.values()):.1f} s: {seconds}")
    assert board.device.unit(UNIT, "UnitFileState")["UnitFileState"] == "generated"
    code = board.pairing_code()
    with board.forwarded() as forwarded:
        host = forwarded.url.removeprefix("http://")
        home = {"XDG_CONFIG_HOME": str(tmp_path)}
        paired = edgellm("pair", host, code, "--name", "laptop", **home)
        assert paired.returncode == 0, paired.stderr
        chat = edgellm("chat", "Say hello.", "--url", f"https://{host}", "--max-tokens", "8", **home)
        assert chat.returncode == 0, chat.stderr
    key = board.device.read("/var/lib/edgellm-host/device-key").strip()
    journal = board.device.journal("", "--all")
    assert key not in journal
    assert code not in journal
    before = board.identity()
    board.device.reboot()
    board.wait_until_served()
    assert board.identity() == before
    assert board.device.unit(FIRST_BOOT, "ConditionResult")["ConditionResult"] == "no"
    assert "laptop" in board.device.run("edgellm", "paired", "list").output
