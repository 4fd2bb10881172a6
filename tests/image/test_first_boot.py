"""The generic image on devices: from the first boot to a paired client and a server that the network finds, and power
cuts in or after each step."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.http.test_command import edgellm
from tests.image.board_device import FIRST_BOOT, ISSUE, KEPT_CODE, MOMENTS, NOTICE, BoardDevice
from tests.lab.bridge import Bridge
from tests.lab.device import Device
from tests.lab.fixtures import MakeDevice
from tests.lab.wheels import release_wheel
from tests.service.appliance import DEPENDENCIES, PREWARM, READY_SECONDS, UNIT
from tests.service.conftest import Say

import edgellm as package
from board_image.assembly import apply, assemble
from board_image.board import read_board
from board_image.contents import Inputs
from edgellm.host.announcement import SERVICE_FILE, SERVICE_TYPE
from edgellm.host.board_name import PREFIX
from edgellm.host.first_boot_state import BootStep
from edgellm.service.pairing.boards import Board
from edgellm.service.pairing.code import PairingCode, fingerprint_text

pytestmark = pytest.mark.system
MIB = 2**20
WANTS = "etc/systemd/system/multi-user.target.wants"
MakeBoard = Callable[[str], BoardDevice]


@pytest.fixture(scope="module")
def image(wheel: Path, device_folder: Path, model_folder: Path) -> Path:
    """With the default model, so that the board needs no network."""
    folder = device_folder / "image"
    wheels = device_folder / "image-wheels"
    release_wheel(wheel, wheels, package.__version__, dependencies=DEPENDENCIES)
    began = time.monotonic()
    manifest = assemble(read_board("generic-x86_64"), Inputs(wheels=wheels, models=[model_folder]), folder)
    parts = ", ".join(f"{part} {size / MIB:.1f} MiB" for part, size in manifest["part_bytes"].items())
    print(f"\nimage: {parts}; assembled in {time.monotonic() - began:.1f} s")
    return folder


@pytest.fixture(scope="module")
def make_board(make_device: MakeDevice, board_rootfs: Path, image: Path, network: Bridge) -> MakeBoard:
    """``make_board("name")``: not booted yet."""
    return lambda name: BoardDevice(make_device, name, board_rootfs, image, network)


@pytest.fixture(scope="module")
def board(make_board: MakeBoard) -> BoardDevice:
    return make_board("board").boot()


@pytest.fixture(scope="module")
def cut_board(make_board: MakeBoard) -> BoardDevice:
    """Loses power in each step of its first boot, one test after the other."""
    return make_board("cut")


@pytest.fixture(scope="module")
def neighbour(make_device: MakeDevice, board_rootfs: Path, network: Bridge) -> Device:
    """Another machine on the boards' network, with avahi and nothing of edgellm."""
    made = make_device("neighbour", board_rootfs, bridge=network)
    return made.boot()


def test_code_and_fingerprint_are_shown_on_the_console_and_are_nowhere_else(
    board: BoardDevice, neighbour: Device
) -> None:
    code, device = board.pairing_code(), board.device
    fingerprint = fingerprint_text(ssl.PEM_cert_to_DER_cert(device.read("/etc/edgellm/tls/ca.crt")))
    device.wait_for(lambda: fingerprint in device.console, "the console")
    (shown,) = {line.split()[-1] for line in device.console.splitlines() if "edgellm pair " in line}
    assert shown == code
    assert f"authority (SHA-256): {fingerprint}" in device.console
    texts = (code, code.replace("-", ""), fingerprint)
    # For root alone: what the login prompt of the console shows, and the code for after a reboot.
    assert board.files_with(code) == [ISSUE, KEPT_CODE]
    assert board.files_with(fingerprint) == [ISSUE]
    assert board.files_with(code.replace("-", "")) == []
    assert device.run("stat", "-c", "%a %U", ISSUE, KEPT_CODE).output.split() == ["600", "root"] * 2
    journal = device.journal("", "--all", "--output=export")
    neighbour.wait_for(lambda: _announced(neighbour), "an announcement")
    network = "\n".join(" ".join(one) for one in _announced(neighbour))
    with board.forwarded() as forwarded, httpx.Client(verify=False, timeout=READY_SECONDS) as client:  # noqa: S501
        url = f"https://{forwarded.url.removeprefix('http://')}"
        paths = ("/", "/health", "/health/ready", "/docs", "/openapi.json", "/metrics", "/v1/models", "/pair")
        answers = [client.get(f"{url}{path}") for path in paths]
    served = "\n".join(f"{answer.headers}\n{answer.text}" for answer in answers)
    for where, said in {"journal": journal, "mDNS": network, "HTTP": served, "ssh": _ssh_greeting(device)}.items():
        assert said, where
        for text in texts:
            assert text not in said, where


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
    assert "The pairing code above holds no more: a client has paired with it." in board.device.console
    everything = board.device.journal() + board.device.journal("", "--all")
    assert code not in everything
    assert board.files_with(code) == []
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
    for alternative in (name, f"{name}.local", board.device.address):
        assert f"'{alternative}'" in shown


def test_its_units_stay_enabled_where_the_policy_is_to_enable_nothing(board: BoardDevice) -> None:
    """As of a distribution that presets all units at a first boot or in an upgrade of its own."""
    units = [file.name for file in (board.device.root / WANTS).iterdir() if file.name.startswith("edgellm")]
    assert {UNIT, FIRST_BOOT, NOTICE} <= {*units}
    board.device.write("/etc/systemd/system-preset/99-none.preset", "disable *\n")
    board.device.run("systemctl", "preset", *units)
    enabled = board.device.run("systemctl", "is-enabled", *units).output.split()
    (board.device.root / "etc/systemd/system-preset/99-none.preset").unlink()
    assert enabled == ["enabled"] * len(units)


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


@pytest.mark.parametrize("moment", MOMENTS, ids=[f"{step.value}-{state}" for step, state in MOMENTS])
def test_a_board_that_loses_power_in_or_after_a_step_goes_on_from_there(
    cut_board: BoardDevice, moment: tuple[BootStep, str], say: Say
) -> None:
    """What was done before stays done: no step that is over is taken again."""
    say(f"power cut at {moment[0].value} {moment[1]}: {cut_board.power_cut_at(*moment)}")


def test_a_board_whose_environment_is_made_needs_its_wheels_no_more(make_board: MakeBoard) -> None:
    """They go before that is written down, one after the other."""
    board = make_board("release")
    wheels = board.device.root / "usr/share/edgellm/image/wheels"
    kept = {file.name: file.read_bytes() for file in wheels.iterdir()}
    board.power_cut_at(BootStep.RELEASE, "done")
    assert not wheels.exists()
    half_removed = wheels.with_name(".wheels-installed")
    half_removed.mkdir()
    (half_removed / min(kept)).write_bytes(kept[min(kept)])
    board.forget_the_end_of(BootStep.RELEASE)
    board.power_cut_at(BootStep.RELEASE, "done")
    assert board.steps()["release"]["note"] == "there already"
    assert not half_removed.exists()


def test_a_second_image_over_the_first_boots_as_if_it_were_the_only_one(
    make_board: MakeBoard, wheel: Path, device_folder: Path
) -> None:
    """Two releases are one too many for a first boot, and the first image's model is not of this board."""
    wheels, model, image = (device_folder / f"earlier-{part}" for part in ("wheels", "model", "image"))
    release_wheel(wheel, wheels, "0.0.9", dependencies=DEPENDENCIES)
    model.mkdir()
    (model / "model.gguf").write_bytes(b"GGUF of another board")
    assemble(read_board("generic-x86_64"), Inputs(wheels=wheels, models=[model]), image)
    board = make_board("second-image")
    alone = _files(board.device.root)
    apply(image, board.device.root)
    assert len(list((board.device.root / "usr/share/edgellm/image/models").iterdir())) == 1
    board.lay_over()
    assert _files(board.device.root) == alone
    board.boot()
    assert board.device.run("ls", "/opt/edgellm-releases").output.startswith(f"{package.__version__}-")
    assert model.name not in board.device.run("ls", "/var/lib/edgellm/models").output


def _files(root: Path) -> set[str]:
    folders = (
        "etc/systemd",
        "etc/edgellm",
        "usr/local",
        "usr/share/edgellm",
        "usr/share/containers",
        "var/lib/edgellm",
    )
    found = (path for folder in folders for path in (root / folder).rglob("*"))
    return {path.relative_to(root).as_posix() for path in found if path.is_symlink() or not path.is_dir()}


def test_after_all_those_power_cuts_it_is_one_board(cut_board: BoardDevice) -> None:
    cut_board.boot()
    assert list(cut_board.steps()) == [step.value for step in BootStep]
    assert {step["state"] for step in cut_board.steps().values()} == {"done"}
    identity = cut_board.identity()
    assert len(identity["etc/edgellm/credentials/api-keys"].splitlines()) == 1
    first = cut_board.pairing_code()
    cut_board.device.power_cut()
    cut_board.boot()
    assert cut_board.identity() == identity
    assert cut_board.pairing_code() == first  # what somebody wrote down is good still
    status = cut_board.device.run("edgellm", "pair-code", "--status").output
    assert "a pairing code is open" in status


def test_a_code_on_the_console_goes_when_another_one_is_made_and_when_nobody_looks_after_it(
    cut_board: BoardDevice,
) -> None:
    device, shown = cut_board.device, cut_board.pairing_code()
    made = device.run("edgellm", "pair-code", "--json").output
    device.wait_for(lambda: device.run("test", "-e", ISSUE, check=False).code == 1, "an empty login prompt")
    device.wait_for(lambda: "holds no more: edgellm pair-code made another one." in device.console, "the console")
    assert shown not in device.console.rpartition("holds no more")[2]
    assert json.loads(made)["code"] not in device.console
    device.run("edgellm", "pair-code", "--close")
    device.run("systemctl", "restart", NOTICE)
    assert cut_board.pairing_code() != shown
    device.run("systemctl", "stop", NOTICE)
    assert device.run("test", "-e", ISSUE, check=False).code == 1


def _ssh_greeting(device: Device) -> str:
    """What the network's login prompt says before anybody has logged in, with its banner."""
    shown = ("ssh", "-v", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")
    return device.run(*shown, "nobody@localhost", "true", check=False).output


def _announced(neighbour: Device) -> list[list[str]]:
    """Interface, protocol, name, type, domain, host name, address, port and text of each server that avahi finds."""
    found = neighbour.run("avahi-browse", "--resolve", "--parsable", "--terminate", SERVICE_TYPE).output
    return [line.split(";")[1:] for line in found.splitlines() if line.startswith("=") and ";IPv4;" in line]


def test_the_network_finds_the_server_while_it_is_ready(board: BoardDevice, neighbour: Device) -> None:
    name, device = board.device.read("/etc/hostname").strip(), board.device

    def found() -> list[list[str]]:
        return [one[2:] for one in _announced(neighbour) if one[2] == name]

    neighbour.wait_for(found, "an announcement")
    ((_, kind, _, host, address, port, text),) = found()
    assert (kind, host, address, port) == (SERVICE_TYPE, f"{name}.local", device.address, "8000")
    assert {'"path=/v1"', '"scheme=https"'} == set(text.split(" "))
    resolved = neighbour.run("avahi-resolve", "-4", "--name", f"{name}.local").output
    assert resolved.split() == [f"{name}.local", device.address]
    device.run("systemctl", "stop", UNIT)
    neighbour.wait_for(lambda: not found(), "the end of the announcement")
    device.run("systemctl", "start", UNIT)
    neighbour.wait_for(found, "an announcement")
    device.power_cut()
    assert (device.root / SERVICE_FILE).exists()
    device.write(f"/etc/systemd/system/{UNIT}.d/never.conf", "[Unit]\nConditionPathExists=/nowhere\n")
    device.boot()
    assert not (device.root / SERVICE_FILE).exists(), "a server that does not run is not announced"
    (device.root / f"etc/systemd/system/{UNIT}.d/never.conf").unlink()
    device.run("systemctl", "daemon-reload")
    device.run("systemctl", "start", UNIT)
    neighbour.wait_for(found, "an announcement")


def test_two_boards_of_one_image_share_no_secret(board: BoardDevice, make_board: MakeBoard) -> None:
    other = make_board("second").boot()
    one, two = board.identity(), other.identity()
    assert [name for name in one if one[name] == two[name]] == []


def test_a_board_that_gets_another_name_says_how_its_certificate_gets_it(board: BoardDevice, tmp_path: Path) -> None:
    """Under the authority of its first boot, which paired clients trust."""
    device, authority = board.device, board.device.read("/etc/edgellm/tls/ca.crt")
    device.run("sh", "-c", "echo hall-3 >/etc/hostname")
    device.reboot()
    board.wait_until_served()
    assert device.run("hostname").output == "hall-3\n"
    warning = "is not for hall-3.local, as this machine is called now"
    assert warning in device.journal(UNIT)
    assert warning in device.run("edgellm", "doctor", check=False).output
    before = _served_certificate(board, tmp_path, authority)
    assert ("DNS", "hall-3.local") not in before["subjectAltName"]
    said = device.run("edgellm", "tls", "init").output
    assert "kept the authority" in said
    assert "it serves the new certificate at once" in said
    device.run("systemctl", "restart", UNIT, deadline_seconds=READY_SECONDS)
    renewed = _served_certificate(board, tmp_path, authority)
    assert {("DNS", "hall-3"), ("DNS", "hall-3.local"), ("IP Address", device.address)} <= {*renewed["subjectAltName"]}
    assert renewed["serialNumber"] != before["serialNumber"]
    assert device.read("/etc/edgellm/tls/ca.crt") == authority
    started = device.unit(UNIT, "InvocationID")["InvocationID"]
    assert warning not in device.run("journalctl", f"_SYSTEMD_INVOCATION_ID={started}", "--output=cat").output
    assert warning not in device.run("edgellm", "doctor", check=False).output


def _served_certificate(board: BoardDevice, folder: Path, authority: str) -> dict[str, Any]:
    """As a client has it that trusts the authority."""
    (folder / "ca.crt").write_text(authority)
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    with (
        board.forwarded() as forwarded,
        socket.create_connection(("127.0.0.1", int(forwarded.url.rpartition(":")[2])), READY_SECONDS) as connection,
        context.wrap_socket(connection, server_hostname="127.0.0.1") as secured,
    ):
        return dict(secured.getpeercert() or {})


def test_an_uninstall_takes_off_what_the_image_brought(board: BoardDevice, image: Path) -> None:
    device = board.device
    brought = json.loads((image / "manifest.json").read_text())["files"]
    units = [
        name for name in brought if name.startswith("usr/local/lib/systemd/") and name.endswith((".service", ".target"))
    ]
    assert any(FIRST_BOOT in name for name in units)
    done = device.run("edgellm", "uninstall")
    assert [name for name in units if (device.root / name).exists()] == [], done.output
    assert [file.name for file in (device.root / WANTS).iterdir() if file.name.startswith("edgellm")] == []
    device.run("systemctl", "daemon-reload")
    assert device.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "edgellm*").output == ""
    assert device.run("systemctl", "list-unit-files", "--plain", "--no-legend", "edgellm*", check=False).output == ""
    assert (device.root / "etc/edgellm/tls/ca.key").exists()
    device.reboot()
    assert device.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "edgellm*").output == ""
    assert device.run("systemctl", "--failed", "--plain", "--no-legend").output == ""
