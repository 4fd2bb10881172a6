"""An image that holds edgellm as a container: its first boot, a client that pairs, and a later boot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.http.test_command import edgellm
from tests.image.board_device import FIRST_BOOT, ISSUE, KEPT_CODE, MOMENTS, NOTICE, BoardDevice
from tests.lab.bridge import Bridge
from tests.lab.fixtures import MakeDevice
from tests.service.appliance import READY_SECONDS, UNIT
from tests.service.conftest import Say

from board_image.assembly import assemble
from board_image.board import read_board
from board_image.contents import Inputs
from edgellm.host.first_boot_state import BootStep

pytestmark = [pytest.mark.system, pytest.mark.thorough]


# What comes before is the same with and without containers.
CONTAINER_STEPS = list(BootStep)[list(BootStep).index(BootStep.RELEASE) :]
CONTAINER_MOMENTS = [(step, state) for step, state in MOMENTS if step in CONTAINER_STEPS]
HALF_LOADED_BYTES = 150_000_000


@pytest.fixture(scope="module")
def make_board(
    make_device: MakeDevice,
    container_rootfs: Path,
    image_archive: Path,
    model_folder: Path,
    device_folder: Path,
    network: Bridge,
) -> Callable[[str], BoardDevice]:
    """``make_board("name")``: not booted yet."""
    image = device_folder / "container-image"
    assemble(read_board("generic-x86_64"), Inputs(container=image_archive, models=[model_folder]), image)
    return lambda name: BoardDevice(make_device, name, container_rootfs, image, network, runs_containers=True)


@pytest.fixture(scope="module")
def board(make_board: Callable[[str], BoardDevice]) -> BoardDevice:
    return make_board("quadlet")


@pytest.fixture(scope="module")
def cut_board(make_board: Callable[[str], BoardDevice]) -> BoardDevice:
    """Loses power in each step of its first boot, one test after the other."""
    return make_board("quadlet-cut")


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
    assert board.files_with(code) == [ISSUE, KEPT_CODE]
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
    board.device.wait_for(lambda: board.device.unit(NOTICE, "ActiveState")["ActiveState"] == "inactive", "its end")
    assert board.files_with(code) == []
    before = board.identity()
    board.device.reboot()
    board.wait_until_served()
    assert board.identity() == before
    assert board.device.unit(FIRST_BOOT, "ConditionResult")["ConditionResult"] == "no"
    assert "laptop" in board.device.run("edgellm", "paired", "list").output


def test_a_board_that_loses_power_while_its_container_is_loaded_loads_it_anew(
    make_board: Callable[[str], BoardDevice], say: Say
) -> None:
    """And needs its archive no more once it is there: that goes before it is written down."""
    board = make_board("quadlet-load")
    reached = board.power_cut_when(lambda: board.device.stored_image_bytes > HALF_LOADED_BYTES)
    assert reached == "release begun"
    say(f"power cut with a container at {reached}")
    board.power_cut_at(BootStep.RELEASE, "done")
    assert list(board.device.root.glob("usr/share/edgellm/image/container/*")) == []
    board.forget_the_end_of(BootStep.RELEASE)
    board.power_cut_at(BootStep.RELEASE, "done")
    assert board.steps()["release"]["note"] == "there already"


@pytest.mark.parametrize(
    "moment",
    CONTAINER_MOMENTS,
    ids=[f"{step.value}-{state}" for step, state in CONTAINER_MOMENTS],
)
def test_a_board_with_a_container_that_loses_power_goes_on_from_there(
    cut_board: BoardDevice, moment: tuple[BootStep, str], say: Say
) -> None:
    say(f"power cut with a container at {moment[0].value} {moment[1]}: {cut_board.power_cut_at(*moment)}")


def test_after_all_those_power_cuts_it_is_one_board_with_one_image(cut_board: BoardDevice) -> None:
    cut_board.boot()
    assert {name: step["state"] for name, step in cut_board.steps().items()} == {one.value: "done" for one in BootStep}
    identity = cut_board.identity()
    assert len(identity["etc/edgellm/credentials/api-keys"].splitlines()) == 1
    images = cut_board.device.run("podman", "images", "--all", "--format={{.ID}} {{.Size}}").output.splitlines()
    assert len(set(images)) == 1, images
    assert not list((cut_board.device.root / "usr/share/edgellm/image/container").glob("*")), "it takes no room twice"
    first = cut_board.pairing_code()
    cut_board.device.power_cut()
    cut_board.boot()
    assert cut_board.identity() == identity
    assert cut_board.pairing_code() == first


def test_a_board_with_a_container_that_gets_another_name_renews_its_certificate(board: BoardDevice) -> None:
    device, warning = board.device, ", as this machine is called now"
    assert warning not in device.journal(UNIT), "it has the name of its certificate"
    authority = device.read("/etc/edgellm/tls/ca.crt")
    device.run("sh", "-c", "echo hall-3 >/etc/hostname")
    device.reboot()
    board.wait_until_served()
    assert f"is not for hall-3.local{warning}" in device.journal(UNIT)
    said = device.run("edgellm", "tls", "init").output
    assert "it serves the new certificate at once" in said
    device.run("systemctl", "restart", UNIT, deadline_seconds=READY_SECONDS)
    started = device.unit(UNIT, "InvocationID")["InvocationID"]
    assert warning not in device.run("journalctl", f"_SYSTEMD_INVOCATION_ID={started}", "--output=cat").output
    assert device.read("/etc/edgellm/tls/ca.crt") == authority
    served = device.read("/etc/edgellm/credentials/tls-certificate")
    assert served == device.read("/etc/edgellm/tls/server.crt")


def test_an_uninstall_takes_off_what_the_image_brought_with_a_container(board: BoardDevice) -> None:
    device = board.device
    done = device.run("edgellm", "uninstall")
    for folder in (
        "usr/local/lib/systemd/system",
        "usr/share/containers/systemd",
        "etc/systemd/system/multi-user.target.wants",
    ):
        left = [file.name for file in (device.root / folder).glob("*edgellm*")]
        assert left == [], done.output
    assert device.run("podman", "ps", "--quiet").output == ""
    device.reboot()
    assert device.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "edgellm*").output == ""
