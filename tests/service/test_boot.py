"""Devices that start, and start again: enabled units, no network, power that goes in the middle of a build."""

from __future__ import annotations

import time

from tests.service.appliance import PREWARM
from tests.service.boot_times import boot_times
from tests.service.conftest import MakeAppliance, Say


def test_a_device_serves_after_every_boot_without_a_network(make_appliance: MakeAppliance, say: Say) -> None:
    appliance = make_appliance("boot").boot()
    appliance.install()
    assert appliance.device.run("ip", "-brief", "link").output.split()[0] == "lo"
    for _ in range(2):  # with the build, and with what is there
        began = time.monotonic()
        appliance.device.reboot()
        appliance.wait_until_it_answers()
        assert appliance.state(PREWARM)["Result"] == "success"
        say(f"{boot_times(appliance)}; reboot to an answer {time.monotonic() - began:.1f} s")
    assert appliance.state()["NRestarts"] == "0"


def test_a_power_cut_during_a_build_leaves_nothing_behind(make_appliance: MakeAppliance) -> None:
    appliance = make_appliance("power").boot()
    appliance.install()
    appliance.cut_power_during_a_build()
    appliance.boot()
    appliance.wait_until_it_answers()
    assert appliance.state(PREWARM)["Result"] == "success"
    assert not appliance.unfinished_engines()
    assert len(list(appliance.engines.glob("smollm2*/manifest.json"))) == 1
    assert "as built" in appliance.command("engine", "verify").output
