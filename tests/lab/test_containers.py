"""What tests of containers rely on: a device whose podman makes units of Quadlet files, which say how they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lab.device import Device
from tests.lab.fixtures import MakeDevice

SPEAKER = """
import os, socket, time
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as said:
    said.connect(os.environ["NOTIFY_SOCKET"])
    said.send(b"STATUS=thinking")
    said.send(b"READY=1\\nSTATUS=spoken by %d" % os.getuid())
time.sleep(3600)
"""
QUADLET = """[Container]
Rootfs=/srv/rootfs:O
ContainerName=speaker
Exec=python3 /speaker.py
Volume=/srv/speaker.py:/speaker.py:ro
Notify=true
Network=host
User=65534
[Service]
TimeoutStartSec=60s
"""


@pytest.fixture(scope="module")
def device(make_device: MakeDevice, rootfs: Path, container_rootfs: Path) -> Device:
    made = make_device("containers", container_rootfs, read_only={"/srv/rootfs": rootfs}, runs_containers=True)
    made.write("/srv/speaker.py", SPEAKER)
    made.write("/etc/containers/systemd/speaker.container", QUADLET)
    return made.boot()


def test_podman_has_what_quadlet_needs(device: Device) -> None:
    shown = device.run("podman", "info", "--format", "{{.Host.CgroupsVersion}} {{.Store.GraphDriverName}}").output
    assert shown.split() == ["v2", "overlay"]


def test_a_container_says_how_it_is_and_ends_with_its_unit(device: Device) -> None:
    device.run("systemctl", "start", "speaker.service")
    state = device.unit("speaker.service", "Type", "ActiveState", "StatusText", "NotifyAccess")
    assert state == {"Type": "notify", "ActiveState": "active", "StatusText": "spoken by 65534", "NotifyAccess": "all"}
    assert device.run("podman", "ps", "--format", "{{.Names}}").output == "speaker\n"
    device.run("systemctl", "stop", "speaker.service")
    assert device.run("podman", "ps", "--all", "--format", "{{.Names}}").output == ""
