"""The generic image on a device of its own: from the first boot to a paired client, and power cuts in between."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.http.test_command import edgellm
from tests.image.board_device import ADDRESS, FIRST_BOOT, ISSUE, NOTICE, BoardDevice
from tests.image.wheels_of_devices import standalone_wheel
from tests.lab.fixtures import MakeDevice
from tests.service.appliance import PREWARM, UNIT
from tests.service.conftest import Say

from board_image.assembly import assemble
from board_image.board import read_board
from board_image.contents import Inputs
from edgellm.host.board_name import PREFIX
from edgellm.host.first_boot_state import BootStep
from edgellm.service.pairing.boards import Board
from edgellm.service.pairing.code import PairingCode

pytestmark = pytest.mark.system
MIB = 2**20
CUT_POLL_SECONDS = 0.005
STEP_DEADLINE_SECONDS = 120.0


@pytest.fixture(scope="module")
def image(wheel: Path, device_folder: Path, model_folder: Path) -> Path:
    """With the default model, so that the board needs no network."""
    folder = device_folder / "image"
    wheels = standalone_wheel(wheel, device_folder / "image-wheels")
    began = time.monotonic()
    manifest = assemble(read_board("generic-x86_64"), Inputs(wheels=wheels, models=[model_folder]), folder)
    parts = ", ".join(f"{part} {size / MIB:.1f} MiB" for part, size in manifest["part_bytes"].items())
    print(f"\nimage: {parts}; assembled in {time.monotonic() - began:.1f} s")
    return folder


@pytest.fixture(scope="module")
def board(make_device: MakeDevice, image: Path) -> BoardDevice:
    made = BoardDevice(make_device, "board", image)
    made.boot()
    return made


def test_a_board_serves_a_client_that_paired_with_the_code_on_its_console(
    board: BoardDevice, tmp_path: Path, say: Say
) -> None:
    steps = board.steps()
    assert list(steps) == [step.value for step in BootStep]
    assert {step["state"] for step in steps.values()} == {"done"}
    seconds = {name: step["seconds"] for name, step in steps.items()}
    say(f"first boot {sum(seconds.values()):.1f} s: {', '.join(f'{name} {each}' for name, each in seconds.items())}")
    code = board.pairing_code()
    assert PairingCode.read(code)
    with board.forwarded() as forwarded:
        host = forwarded.url.removeprefix("http://")
        home = {"XDG_CONFIG_HOME": str(tmp_path)}
        paired = edgellm("pair", host, code, "--name", "laptop", **home)
        assert paired.returncode == 0, paired.stderr
        chat = edgellm("chat", "Say hello.", "--url", f"https://{host}", "--max-tokens", "8", **home)
        assert chat.returncode == 0, chat.stderr
        assert chat.stdout.strip()
        replayed = edgellm("pair", host, code, XDG_CONFIG_HOME=str(tmp_path / "other"))
        assert replayed.returncode == 77
        kept = Board.at("127.0.0.1", int(host.rpartition(":")[2]), home)
        assert kept.authority_file.read_text() == (board.device.root / "etc/edgellm/tls/ca.crt").read_text()
    board.device.wait_for(lambda: board.device.unit(NOTICE, "ActiveState")["ActiveState"] == "inactive", "its end")
    assert board.device.run("test", "-e", ISSUE, check=False).code == 1
    everything = board.device.journal() + board.device.journal("", "--all")
    assert code not in everything
    assert kept.key() not in everything


def test_what_is_secret_is_closed_and_what_is_root_s_is_root_s(board: BoardDevice) -> None:
    modes = board.device.run(
        *("stat", "-c", "%a %U %G %n", "/var/lib/edgellm-host", "/var/lib/edgellm-host/device-key"),
        *("/etc/edgellm/tls/ca.key", "/etc/edgellm/credentials/tls-key", "/etc/edgellm/credentials/api-keys"),
    ).output.splitlines()
    assert [line.rpartition(" ")[0] for line in modes] == [
        *("700 root root", "600 root root", "600 root root", "640 root edgellm", "640 root edgellm"),
    ]
    key = board.device.read("/var/lib/edgellm-host/device-key").strip()
    assert key not in board.device.journal()


def test_the_certificate_names_the_board_and_its_address(board: BoardDevice) -> None:
    name = board.device.read("/etc/hostname").strip()
    assert name.startswith(PREFIX)
    assert len(name) == len(PREFIX) + 4
    shown = board.device.run(
        "/opt/edgellm/bin/python3",
        "-c",
        "import ssl; print(ssl._ssl._test_decode_cert('/etc/edgellm/credentials/tls-certificate')['subjectAltName'])",
    ).output
    for alternative in (name, f"{name}.local", ADDRESS):
        assert f"'{alternative}'" in shown


def test_later_boots_make_no_new_identity_and_serve_on(board: BoardDevice, say: Say) -> None:
    before = board.identity()
    began = time.monotonic()
    board.device.reboot()
    board.wait_until_served()
    say(f"reboot to READY {time.monotonic() - began:.1f} s")
    board.device.power_cut()
    board.boot()
    assert board.identity() == before
    assert board.device.unit(FIRST_BOOT, "ConditionResult")["ConditionResult"] == "no"
    assert board.device.unit(PREWARM, "Result")["Result"] == "success"
    assert board.device.unit(UNIT, "NRestarts")["NRestarts"] == "0"
    assert board.device.run("edgellm", "first-boot").output == ""
    assert "laptop" in board.device.run("edgellm", "paired", "list").output


def test_a_board_that_loses_power_in_or_after_any_step_goes_on_from_there(
    make_device: MakeDevice, image: Path, say: Say
) -> None:
    """One board, one power cut a step: at its beginning for one half of them, at its end for the other."""
    cut = BoardDevice(make_device, "cut", image)
    moments = [(step.value, ("begun", "done")[number % 2]) for number, step in enumerate(BootStep)]
    began = time.monotonic()
    taken: list[str] = []
    for name, state in moments:
        cut.device.start_booting()
        _wait_for_moment(cut, name, state)
        cut.device.power_cut()
        reached = cut.steps()
        taken.append(f"{name} {reached[name]['state']}")
        assert [step for step in reached if reached[step]["state"] == "begun"] in ([], [list(reached)[-1]])
    cut.boot()
    say(f"{len(moments)} power cuts ({', '.join(taken)}) and the boots after them {time.monotonic() - began:.1f} s")
    assert {step["state"] for step in cut.steps().values()} == {"done"}
    identity = cut.identity()
    assert len(identity["etc/edgellm/credentials/api-keys"].splitlines()) == 1
    assert cut.pairing_code() == cut.pairing_code()
    first = cut.pairing_code()
    cut.device.power_cut()
    cut.boot()
    assert cut.identity() == identity
    assert cut.pairing_code() == first  # what somebody wrote down is good still
    status = cut.device.run("edgellm", "pair-code", "--status").output
    assert "a pairing code is open" in status


def _wait_for_moment(board: BoardDevice, name: str, state: str) -> None:
    deadline = time.monotonic() + STEP_DEADLINE_SECONDS
    wanted = ("begun", "done") if state == "begun" else ("done",)
    while board.steps().get(name, {}).get("state") not in wanted:
        assert time.monotonic() < deadline, board.device.console[-3000:]
        time.sleep(CUT_POLL_SECONDS)


def test_two_boards_of_one_image_share_no_secret(board: BoardDevice, make_device: MakeDevice, image: Path) -> None:
    other = BoardDevice(make_device, "second", image)
    other.boot()
    one, two = board.identity(), other.identity()
    assert [name for name in one if one[name] == two[name]] == []
