"""A device with the tools of a Jetson: programs that stand in for NVIDIA's, which run on boards alone, and record what
they were told. Units, packages, boot targets and everything around them are real.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.fleet.control_host import FAILED, Played
from tests.fleet.fleet import Fleet
from tests.lab.device import Device

pytestmark = pytest.mark.thorough
RECORD = "/var/lib/board-tools"
NVPMODEL_CONF = "< POWER_MODEL ID=0 NAME=15W >\n< POWER_MODEL ID=1 NAME=25W >\n< POWER_MODEL ID=2 NAME=MAXN_SUPER >\n"
NVPMODEL = f"""#!/bin/sh
# Asks whether it may reboot: "no" is for whoever is there to say.
case "$1" in
-q) echo "NV Power Mode: of the record"; cat {RECORD}/mode ;;
-m) read answer; [ "$answer" = no ] || exit 1; echo "$2" >{RECORD}/mode; echo "nvpmodel -m $2" >>{RECORD}/calls ;;
esac
"""
JETSON_CLOCKS = f"""#!/bin/sh
if [ "$1" = --store ]; then
    [ ! -e "$2" ] || {{ echo "$2 exists. Can I overwrite it?"; read answer; [ "$answer" = Y ] || exit 1; }}
    echo stored >"$2"
fi
echo "jetson_clocks $1" >>{RECORD}/calls
"""
# As it does: the unit is not active any more once there is swap. Swap of a container is that of the machine around it.
NVZRAMCONFIG = f"""[Service]
ExecStart=/bin/sh -c 'echo "nvzramconfig" >>{RECORD}/calls; mount --bind {RECORD}/swaps /proc/swaps'
[Install]
WantedBy=multi-user.target
"""
SWAPS = "Filename Type Size Used Priority\n/dev/zram0 partition 1024 0 5\n/dev/zram1 partition 1024 0 5\n"
SWAPOFF = f"""#!/bin/sh
echo "swapoff $*" >>{RECORD}/calls
umount /proc/swaps
"""
DESKTOP = "[Service]\nExecStart=/bin/sleep infinity\n"
CONTROL = """Package: nvidia-l4t-core
Version: 39.2
Architecture: all
Maintainer: Test <test@example.org>
Description: of a test
"""
WANTED = {
    "device_power_mode": "maxn_super",
    "device_clocks_locked": True,
    "device_zram": "on",
    "device_desktop": "off",
    "device_l4t_held": True,
}
UNWANTED = {"device_power_mode": "15W", "device_clocks_locked": False, "device_zram": "off"}


@pytest.fixture
def device(fleet: Fleet) -> Iterator[Device]:
    _ = fleet.provisioned
    one = fleet.add("dev6").boot()
    fleet.write_inventory()
    try:
        one.write(f"{RECORD}/mode", "1\n")
        one.write(f"{RECORD}/calls", "")
        one.write(f"{RECORD}/swaps", SWAPS)
        one.write("/etc/nvpmodel.conf", NVPMODEL_CONF)
        for name, text in {"nvpmodel": NVPMODEL, "jetson_clocks": JETSON_CLOCKS, "swapoff": SWAPOFF}.items():
            one.write(f"/usr/local/sbin/{name}", text, 0o755)
        one.write("/etc/systemd/system/nvzramconfig.service", NVZRAMCONFIG)
        one.write("/etc/systemd/system/display-manager.service", DESKTOP)
        one.write("/root/nvidia-l4t-core/DEBIAN/control", CONTROL)
        one.run("dpkg-deb", "--build", "/root/nvidia-l4t-core")
        one.run("dpkg", "--install", "/root/nvidia-l4t-core.deb")
        one.run("systemctl", "set-default", "graphical.target")
        one.run("systemctl", "daemon-reload")
        one.run("systemctl", "start", "display-manager")
        yield one
    finally:
        fleet.drop(one.name)


def prepare(fleet: Fleet, device: Device, *options: str, **variables: object) -> Played:
    limit = [device.name]
    return fleet.control.play("provision", "--tags", "device", *options, variables=variables, limit=limit)


def calls(device: Device) -> list[str]:
    """Since it was last asked."""
    told = device.read(f"{RECORD}/calls").splitlines()
    device.write(f"{RECORD}/calls", "")
    return told


def test_a_board_s_tools_are_used_once_and_what_they_did_is_taken_back(fleet: Fleet, device: Device) -> None:
    foreseen = prepare(fleet, device, "--check", **WANTED)
    assert foreseen.code == 0, foreseen.output[-3000:]
    assert calls(device) == []
    played = prepare(fleet, device, **WANTED)
    assert played.code == 0, played.output[-3000:]
    assert calls(device) == ["nvpmodel -m 2", "jetson_clocks --store", "jetson_clocks ", "nvzramconfig"]
    assert device.run("systemctl", "get-default").output.strip() == "multi-user.target"
    assert device.unit("display-manager.service", "ActiveState") == {"ActiveState": "inactive"}
    assert device.run("apt-mark", "showhold").output.split() == ["nvidia-l4t-core"]
    assert device.run("systemctl", "is-enabled", "edgellm-clocks", "nvzramconfig").output.split() == ["enabled"] * 2
    again = prepare(fleet, device, **WANTED)
    assert again.recap[device.name].changed == 0, again.changed_tasks
    assert calls(device) == []

    back = prepare(fleet, device, **UNWANTED)
    assert back.code == 0, back.output[-3000:]
    assert calls(device) == ["nvpmodel -m 0", "jetson_clocks --restore", "swapoff /dev/zram0 /dev/zram1"]
    assert device.run("systemctl", "is-enabled", "nvzramconfig", check=False).output.strip() == "disabled"
    # Once more within one boot: what was stored before is in the way of nobody.
    once_more = prepare(fleet, device, **WANTED)
    assert once_more.code == 0, once_more.output[-3000:]
    refused = prepare(fleet, device, **WANTED | {"device_power_mode": "MAXN"})
    assert refused.code == FAILED
    assert "device_power_mode: this board has no mode MAXN - /etc/nvpmodel.conf lists them" in refused.output
