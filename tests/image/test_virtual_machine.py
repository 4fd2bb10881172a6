"""The generic image as a machine's own disk, booted by a kernel of its own in qemu: minutes by software emulation."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.http.test_command import edgellm
from tests.image.virtual_machine import DISK_BYTES, MACHINE_PACKAGES, VirtualMachine, make_disk, missing_programs
from tests.lab.needs import need
from tests.lab.rootfs import extended_rootfs
from tests.lab.wheels import install_dependencies, release_wheel
from tests.service.appliance import DEPENDENCIES, PORT
from tests.service.conftest import Say

import edgellm as package
from board_image.assembly import apply, assemble
from board_image.board import read_board
from board_image.contents import Inputs
from edgellm.host.first_boot_state import BootStep

pytestmark = pytest.mark.long
FIRST_BOOT_SECONDS = 3600.0
BOOT_SECONDS = 1800.0
STATE = "/var/lib/edgellm-host/first-boot.json"
IDENTITY = ("/etc/machine-id", "/etc/hostname", "/etc/ssh/ssh_host_ed25519_key", "/etc/edgellm/tls/ca.crt")


@pytest.fixture(scope="module")
def machine(board_rootfs: Path, wheel: Path, device_folder: Path, model_folder: Path) -> Iterator[VirtualMachine]:
    """Off. Its disk is larger than the file system on it."""
    need(missing_programs())
    folder = device_folder / "machine"
    folder.mkdir()
    wheels = folder / "wheels"
    wheels.mkdir()
    # What edgellm depends on is on the machine already: compiling it takes many minutes by emulation.
    release_wheel(wheel, wheels, package.__version__, dependencies=DEPENDENCIES)
    assemble(read_board("generic-x86_64"), Inputs(wheels=wheels, models=[model_folder]), folder / "image")
    root = folder / "root"
    subprocess.run(["cp", "-a", extended_rootfs(board_rootfs, MACHINE_PACKAGES), root], check=True)
    apply(folder / "image", root)
    install_dependencies(root / DEPENDENCIES.lstrip("/"))
    made = VirtualMachine(folder, folder / "disk", root / "boot", PORT)
    make_disk(root, folder / "disk")
    yield made
    made.power_cut()
    shutil.rmtree(folder)


def certificate_of(machine: VirtualMachine) -> str:
    try:
        return ssl.get_server_certificate(("127.0.0.1", machine.port), timeout=10)
    except OSError:
        return ""


def test_it_grows_its_disk_serves_a_paired_client_and_stays_itself(
    machine: VirtualMachine, tmp_path: Path, say: Say
) -> None:
    began = time.monotonic()
    machine.boot()
    machine.wait_for(lambda: re.search(r"edgellm pair (\S+) (\S+)", machine.console), "a code", FIRST_BOOT_SECONDS)
    first_seconds = time.monotonic() - began
    found = re.search(r"edgellm pair (\S+) (\S+)", machine.console)
    assert found is not None
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    address = f"127.0.0.1:{machine.port}"
    paired = edgellm("pair", address, found[2], "--name", "laptop", **home)
    assert paired.returncode == 0, paired.stderr
    chat = edgellm("chat", "Say hello.", "--url", f"https://{address}", "--max-tokens", "8", **home)
    assert chat.returncode == 0, chat.stderr
    certificate = certificate_of(machine)
    machine.power_button()

    steps = json.loads(machine.read(STATE))["steps"]
    assert {name: step["state"] for name, step in steps.items()} == {step.value: "done" for step in BootStep}
    assert steps["file_system"]["note"] == "ext4 on /dev/vda1 fills its disk"
    identity = {name: machine.read(name) for name in IDENTITY}
    assert found[1] == f"{identity['/etc/hostname'].strip()}.local"
    assert machine.size_bytes > DISK_BYTES * 0.95

    began = time.monotonic()
    machine.boot()
    machine.wait_for(lambda: certificate_of(machine), "a server", BOOT_SECONDS)
    chat = edgellm("chat", "Say hello.", "--url", f"https://{address}", "--max-tokens", "8", **home)
    assert chat.returncode == 0, chat.stderr
    later_seconds = time.monotonic() - began
    assert certificate_of(machine) == certificate
    machine.power_button()
    assert {name: machine.read(name) for name in IDENTITY} == identity
    seconds = ", ".join(f"{name} {step['seconds']:.1f}" for name, step in steps.items())
    say(
        f"qemu: switched on to a pairing code {first_seconds:.0f} s ({seconds}); "
        f"switched on again to an answer {later_seconds:.0f} s"
    )
