"""Devices that start, and start again: enabled units, no network, power that goes in the middle of a build."""

from __future__ import annotations

import time

from tests.service.appliance import PREWARM, READY_SECONDS
from tests.service.boot_times import boot_times
from tests.service.conftest import MakeAppliance, Say

ENGINES = "/var/lib/edgellm/engines"


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
    engines = appliance.device.root / ENGINES.lstrip("/")

    def unfinished() -> list[str]:
        found = engines.glob(".*/*") if engines.is_dir() else ()
        return [path.name for path in found if path.is_file() and path.stat().st_size > 0]

    appliance.device.run("systemctl", "--no-block", "start", PREWARM)
    deadline = time.monotonic() + READY_SECONDS
    while not unfinished():
        assert time.monotonic() < deadline, appliance.journal(PREWARM)
    appliance.device.power_cut()
    assert unfinished(), "the build was over already"
    assert not list(engines.glob("smollm2*")), "it was published already"
    appliance.boot()
    appliance.wait_until_it_answers()
    assert appliance.state(PREWARM)["Result"] == "success"
    assert not unfinished()
    assert len(list(engines.glob("smollm2*/manifest.json"))) == 1
    assert "as built" in appliance.command("engine", "verify").output
