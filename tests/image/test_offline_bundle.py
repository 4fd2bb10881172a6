"""An offline bundle on a device that no route leads out of: installed, refused where a bit differs, upgraded and back.

And what a report of such a device for support does not hold."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest
from tests.image.bundles import CHECKOUT, STICK, Publisher, exported_engine
from tests.image.canaries import check_report, plant
from tests.image.reports import report_of
from tests.lab.fixtures import MakeDevice
from tests.lab.small_disk import small_disk
from tests.lab.wheels import release_folder
from tests.service.appliance import DEPENDENCIES, PREWARM, UNIT, Appliance, dependencies_folder
from tests.service.conftest import Say
from tests.service.release_wheels import BROKEN, ReleaseWheels
from tests.service.upgrading import releases_of, serving_version, upgrade
from tests.unit.host.conftest import make_key

pytestmark = pytest.mark.system
MODEL = "smollm2-135m-instruct"
INSTALL_SECONDS = 600.0
# Every kind of part that a bundle for virtual environments has.
PARTS = [
    *("install.sh", "host.pyz", "wheels", "engines", "models", "collection", "edgellm.toml", "sbom.cdx.json"),
    *("manifest.json", "manifest.json.sig"),
]
SYSTEM = ("usr/local/lib/edgellm", "opt/edgellm", "opt/edgellm-releases", "etc/edgellm", "var/lib/edgellm-host")


@pytest.fixture(scope="module")
def publisher(device_folder: Path) -> Publisher:
    folder = device_folder / "publisher"
    folder.mkdir()
    return Publisher(device_folder / "stick", make_key(folder / "key"))


@pytest.fixture(scope="module")
def first_bundle(publisher: Publisher, wheel: Path, device_folder: Path, model_folder: Path) -> str:
    """Everything that a board needs, with all dependencies of edgellm. Its name below the stick."""
    wheels = device_folder / "bundle-wheels"
    wheels.mkdir()
    release_folder(wheel, wheels, "0.2.0")
    inputs = device_folder / "bundle-inputs"
    shutil.copytree(model_folder, inputs / "cache/models" / model_folder.name)
    said = publisher.bundle(
        "first",
        *("--wheels", wheels, "--engine", exported_engine(MODEL, inputs), "--model", model_folder),
        *("--collection", CHECKOUT / "ansible", "--config", publisher.folder / "edgellm.toml", "--floor", "0.2.0"),
    )
    print(f"\n{said}", end="")
    return "first"


@pytest.fixture(scope="module")
def board(make_device: MakeDevice, board_rootfs: Path, publisher: Publisher) -> Appliance:
    """Without anything of edgellm; its network is loopback alone."""
    device = make_device(
        "offline", board_rootfs, read_only={STICK: publisher.folder, DEPENDENCIES: dependencies_folder()}
    )
    device.boot()
    return Appliance(device)


def install(board: Appliance, bundle: str, *options: str) -> tuple[int, str]:
    done = board.device.run(
        "sh", f"{STICK}/{bundle}/install.sh", *options, check=False, deadline_seconds=INSTALL_SECONDS
    )
    return done.code, done.output


def system_of(board: Appliance) -> list[str]:
    """What is there of edgellm."""
    return [name for name in SYSTEM if (board.device.root / name).exists()]


@pytest.mark.parametrize("part", PARTS)
def test_one_changed_bit_is_refused_by_name_before_anything_is_there(
    board: Appliance, publisher: Publisher, first_bundle: str, part: str
) -> None:
    name = publisher.tampered(first_bundle, part)
    code, said = install(board, "tampered", "--key", f"{STICK}/publisher.pub")
    assert code == 77, said
    # A signature speaks of what was signed.
    assert f"{STICK}/tampered/{'manifest.json' if name.startswith('manifest.json') else name}" in said
    assert said.count("\n") == 1, said
    assert system_of(board) == []


def test_a_bundle_of_nobody_who_is_trusted_is_refused(board: Appliance, first_bundle: str) -> None:
    code, said = install(board, first_bundle)
    assert code == 77
    assert "trusts nobody's bundles yet — give --key" in said
    assert system_of(board) == []


@pytest.mark.parametrize(
    ("python", "found"), [('[ "$1" = -c ] && exit 1; echo Python 3.10.12', "Python 3.10.12"), (None, "missing")]
)
def test_a_machine_without_the_python_that_it_takes_is_told(
    board: Appliance, first_bundle: str, python: str | None, found: str
) -> None:
    tools = ("sh", "env", "dirname", "id", "rm", "mktemp")
    board.device.run("sh", "-c", f"rm -rf /root/bin; mkdir /root/bin; ln -s $(which {' '.join(tools)}) /root/bin")
    if python is not None:
        board.device.write("/root/bin/python3", f"#!/bin/sh\n{python}\n", 0o755)
    program = f"{STICK}/{first_bundle}/install.sh"
    refused = board.device.run("env", "PATH=/root/bin", "sh", program, "--key", f"{STICK}/publisher.pub", check=False)
    assert refused.code == 69
    assert "install: edgellm needs Python 3.11 or newer, and python3 here is " in refused.output
    assert found in refused.output
    assert refused.output.count("\n") == 1
    assert system_of(board) == []


def test_a_bundle_for_boards_of_another_kind_leaves_no_key_and_no_configuration(
    board: Appliance, publisher: Publisher, first_bundle: str
) -> None:
    other = publisher.for_architecture(first_bundle, "riscv64")
    code, said = install(board, other, "--key", f"{STICK}/publisher.pub")
    assert code == 66, said
    assert f"{STICK}/{other} is for riscv64, and this machine is" in said
    assert system_of(board) == ["var/lib/edgellm-host"]
    assert board.device.run("ls", "-A", "/var/lib/edgellm-host").output.split() == ["lock"]


def test_it_installs_without_any_route_and_serves(board: Appliance, first_bundle: str, say: Say) -> None:
    assert board.device.run("ip", "route").output == ""
    began = time.monotonic()
    # As the README has it: in the stick's folder.
    done = board.device.run(
        *("env", "-C", STICK, "sh", f"{first_bundle}/install.sh", "--key", "publisher.pub"),
        check=False,
        deadline_seconds=INSTALL_SECONDS,
    )
    code, said = done.code, done.output
    assert code == 0, said
    seconds = time.monotonic() - began
    (verified,) = re.findall(r"verified: .*", said)
    say(f"offline bundle: {verified}; from the stick to READY {seconds:.1f} s")
    assert serving_version(board) == "0.2.0"
    assert board.chat().status_code == 200
    assert f"from /var/lib/edgellm/import/{MODEL}.tar.zst" in board.journal(PREWARM)
    assert board.device.run("systemctl", "is-enabled", UNIT).output.strip() == "enabled"
    assert releases_of(board)["version_floor"] == "0.2.0"


@pytest.fixture(scope="module")
def later_bundle(publisher: Publisher, releases: ReleaseWheels) -> str:
    releases.good("0.3.0")
    publisher.bundle("later", "--wheels", releases.folder / "0.3.0")
    return "later"


def test_models_that_do_not_fit_are_refused_with_numbers_before_anything_is_written(
    board: Appliance, publisher: Publisher, releases: ReleaseWheels, device_folder: Path
) -> None:
    releases.good("0.3.0")
    large = device_folder / "large/large.gguf"
    large.parent.mkdir()
    large.write_bytes(b"GGUF" * 25_000_000)
    publisher.bundle("large", "--wheels", releases.folder / "0.3.0", "--model", large.parent)
    pid = board.pid()
    with small_disk(board.device, "/var/lib/edgellm/models", "60m"):
        code, said = install(board, "large")
        left = board.device.run("find", "/var/lib/edgellm/models", "-name", "*large*").output
    assert code == 73, said
    assert re.search(r"models: what the bundle brings needs up to 300\.0 MB, and 6\d\.\d MB are free — make room", said)
    assert left == ""
    assert (board.pid(), serving_version(board)) == (pid, "0.2.0")


def test_a_model_that_was_damaged_on_the_board_is_mended_by_the_bundle_that_brought_it(
    board: Appliance, first_bundle: str
) -> None:
    model = board.device.run("find", "/var/lib/edgellm/models", "-name", "*.gguf").output.strip()
    whole, pid = board.device.run("sha256sum", model).output, board.pid()
    board.device.run("sh", "-c", f"printf x | dd of='{model}' bs=1 seek=1000 conv=notrunc")
    assert board.device.run("sha256sum", model).output != whole
    code, said = install(board, first_bundle)
    assert code == 0, said
    assert f"replaced {model}: its bytes were not those of the bundle" in said
    assert "kept /etc/edgellm/edgellm.toml" not in said
    assert board.device.run("sha256sum", model).output == whole
    assert board.device.run("stat", "--format=%U:%a", model).output.strip() == "edgellm:640"
    assert board.pid() != pid
    assert board.chat().status_code == 200
    code, said = install(board, first_bundle)
    assert (code, said.splitlines()[-1].split(":")[0]) == (0, "unchanged"), said


@pytest.mark.parametrize("part", ["host.pyz", "wheels", "manifest.json"])
def test_an_upgrade_from_a_changed_bundle_leaves_the_server_alone(
    board: Appliance, publisher: Publisher, later_bundle: str, part: str
) -> None:
    name, pid = publisher.tampered(later_bundle, part), board.pid()
    refused = upgrade(board, f"{STICK}/tampered")
    assert refused.code == 77, refused.output
    assert f"{STICK}/tampered/{name}" in refused.output
    code, said = install(board, "tampered")
    assert code == 77, said
    assert (board.pid(), serving_version(board)) == (pid, "0.2.0")


def test_another_mode_than_the_board_has_is_refused_with_what_to_do(board: Appliance, later_bundle: str) -> None:
    """Before the key of anybody is trusted."""
    keys, pid = board.device.run("ls", "/etc/edgellm/trusted-keys").output, board.pid()
    board.device.run("cp", f"{STICK}/publisher.pub", "/root/another name.pub")
    code, said = install(board, later_bundle, "--mode", "container", "--key", "/root/another name.pub")
    assert (code, said.splitlines()[1:]) == (
        78,
        [
            "install: edgellm is installed here as a venv, not as a container — leave --mode out to upgrade it, or "
            "take it off first: edgellm uninstall"
        ],
    )
    assert board.device.run("ls", "/etc/edgellm/trusted-keys").output == keys
    assert (board.pid(), serving_version(board)) == (pid, "0.2.0")


def test_a_bundle_upgrades_an_earlier_install_and_goes_back(board: Appliance, later_bundle: str) -> None:
    code, said = install(board, later_bundle, "--mode", "venv")
    assert code == 0, said
    assert serving_version(board) == "0.3.0"
    assert board.chat().status_code == 200
    back = upgrade(board, "--rollback")
    assert back.code == 0, back.output
    assert serving_version(board) == "0.2.0"
    assert board.chat().status_code == 200


@pytest.mark.thorough
def test_a_bundle_whose_release_is_broken_is_undone(
    board: Appliance, publisher: Publisher, releases: ReleaseWheels
) -> None:
    assert "ends-at-its-start" in BROKEN
    releases.broken("ends-at-its-start")
    publisher.bundle("broken", "--wheels", releases.folder / "ends-at-its-start")
    code, said = install(board, "broken")
    assert code == 76, said
    assert "serves" in said
    assert serving_version(board) == "0.2.0"
    assert board.chat().status_code == 200


def test_a_report_holds_no_prompt_and_no_key(board: Appliance, say: Say) -> None:
    drop_in = (f"/etc/systemd/system/{UNIT}.d/50-token.conf", "[Service]\nEnvironment=")
    canaries = plant(board, token_drop_in=drop_in)
    began = time.monotonic()
    report = report_of(board)
    seconds, texts_of = time.monotonic() - began, report.texts
    assert report.mode == 0o600
    check_report(board, report, canaries)
    assert "0.2.0" in texts_of["releases/releases.json"]
    assert "listening on" in texts_of["journal/edgellm.service.txt"]
    assert '"smollm2-135m-instruct"' in texts_of["service/models.json"]
    assert any(name.startswith("engines/") and name.endswith("manifest.json") for name in texts_of)
    assert {"service/health.json", "service/metrics.txt", "service/edgellm.toml", "README.txt"} <= set(texts_of)
    assert all(name in report.said for name in texts_of)
    say(f"report: {len(texts_of)} files, {report.size_bytes / 1000:.0f} kB, in {seconds:.1f} s")
