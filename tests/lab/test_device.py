"""What tests on devices rely on: real units, limits that hold, power cuts, reboots, a way in for clients."""

from __future__ import annotations

import socket
import subprocess

import pytest
from tests.lab.device import Device
from tests.lab.fixtures import MakeDevice
from tests.lab.forwarding import ForwardedPort, connect_inside

EATER = "[Service]\nMemoryMax=64M\nMemorySwapMax=0\nExecStart=/usr/bin/python3 -c 'bytearray(256 << 20).count(1)'\n"
SERVER = "[Service]\nExecStart=/usr/bin/python3 -m http.server 8000 --bind 127.0.0.1 --directory /etc\n"


@pytest.fixture(scope="module")
def device(make_device: MakeDevice) -> Device:
    made = make_device("lab")
    made.write("/etc/systemd/system/eater.service", EATER)
    made.write("/etc/systemd/system/server.service", SERVER + "[Install]\nWantedBy=multi-user.target\n")
    return made.boot()


def test_a_device_boots_into_systemd_of_its_own(device: Device) -> None:
    assert device.run("systemctl", "is-system-running").output.strip() == "running"
    assert device.read("/proc/1/comm").strip() == "systemd"
    assert device.run("ip", "-brief", "address").output.split()[:1] == ["lo"]


def test_limits_of_memory_hold(device: Device) -> None:
    device.run("systemctl", "start", "eater.service", check=False)
    device.wait_for(lambda: device.unit("eater.service")["ActiveState"] == "failed", "the end of the eater")
    assert device.unit("eater.service")["ExecMainStatus"] == "9"


def test_clients_of_this_machine_reach_a_port(device: Device) -> None:
    device.run("systemctl", "start", "server.service")

    def answers() -> bool:
        try:
            with connect_inside(device, 8000) as connection:
                connection.sendall(b"GET /hostname HTTP/1.0\r\n\r\n")
                return b"lab\n" in b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return False

    device.wait_for(answers, "the server")
    with ForwardedPort(device, 8000) as forwarded:
        address = forwarded.url.rpartition("/")[2].split(":")
        with socket.create_connection((address[0], int(address[1]))) as connection:
            connection.sendall(b"GET /hostname HTTP/1.0\r\n\r\n")
            assert b"lab\n" in b"".join(iter(lambda: connection.recv(4096), b""))


def test_files_and_journal_outlive_reboots_and_power_cuts(device: Device) -> None:
    device.run("systemctl", "enable", "server.service")
    device.run("sh", "-c", "echo one >/var/lib/kept; logger -t kept one; journalctl --sync")
    device.reboot()
    device.wait_for(lambda: device.unit("server.service")["ActiveState"] == "active", "an enabled unit")
    device.power_cut()
    device.boot()
    assert device.read("/var/lib/kept") == "one\n"
    assert "one" in device.journal("", "--identifier=kept")
    assert device.run("journalctl", "--list-boots", "--no-pager").output.count("\n") >= 3


def test_nothing_in_a_device_sees_its_first_process_end_at_a_power_cut(device: Device) -> None:
    """As an upgrade did: a call to systemd failed, and it wrote down a failure that no board has."""
    watch = (
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/systemd/private'); print('on', flush=True)"
    )
    then = "s.recv(1); open('/var/lib/saw-it-end', 'w').close()"
    device.run("systemd-run", "--quiet", "--unit=watcher", "python3", "-c", f"{watch}; {then}")
    device.wait_for(lambda: "on" in device.journal("watcher.service", "--output=cat"), "the watcher")
    device.power_cut()
    device.boot()
    assert device.run("test", "-e", "/var/lib/saw-it-end", check=False).code == 1


def test_what_was_started_in_a_device_sees_nothing_of_it_stand_still_at_a_power_cut(device: Device) -> None:
    """As an upgrade did: its server did not answer any more, and it began to put back the release of before."""
    device.run("systemd-run", "--quiet", "--unit=watched", "sleep", "3600")
    watch = (
        f"stat = '/proc/{device.unit('watched.service', 'MainPID')['MainPID']}/stat'; print('on', flush=True)\n"
        "while open(stat).read().split()[2] != 'T': pass\n"
        "open('/var/lib/saw-it-stop', 'w').close()"
    )
    with subprocess.Popen([*device.enter(), "python3", "-c", watch], stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == "on\n"
        device.power_cut()
    device.boot()
    assert device.run("test", "-e", "/var/lib/saw-it-stop", check=False).code == 1


def test_two_devices_share_nothing_but_the_root_file_system(device: Device, make_device: MakeDevice) -> None:
    other = make_device("other").boot()
    other.write("/etc/only-here", "x")
    assert device.run("test", "-e", "/etc/only-here", check=False).code == 1
    assert device.read("/etc/machine-id") != other.read("/etc/machine-id")
    other.power_off()
