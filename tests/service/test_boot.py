"""Devices that start, and start again: enabled units, no network, power that goes in the middle of a build."""

from __future__ import annotations

import time
from itertools import pairwise

from tests.service.appliance import PREWARM, READY_SECONDS, UNIT, Appliance
from tests.service.conftest import MakeAppliance, Say

ENGINES = "/var/lib/edgellm/engines"
SECOND_MICROSECONDS = 1_000_000


def test_a_device_serves_after_every_boot_without_a_network(make_appliance: MakeAppliance, say: Say) -> None:
    appliance = make_appliance("boot").boot()
    appliance.install()
    assert appliance.device.run("ip", "-brief", "link").output.split()[0] == "lo"
    for _ in range(2):  # with the build, and with what is there
        began = time.monotonic()
        appliance.device.reboot()
        appliance.wait_until_it_answers()
        assert appliance.state(PREWARM)["Result"] == "success"
        say(f"{_split_of_boot(appliance)}; reboot to an answer {time.monotonic() - began:.1f} s")
    assert appliance.state()["NRestarts"] == "0"


def _split_of_boot(appliance: Appliance) -> str:
    """By systemd's own clock, from its first moment."""
    device = appliance.device
    began = int(device.run("systemctl", "show", "--property=UserspaceTimestampMonotonic", "--value").output)
    server = device.unit(UNIT, "ExecMainStartTimestampMonotonic", "ActiveEnterTimestampMonotonic")
    prewarm = device.unit(PREWARM, "ExecMainStartTimestampMonotonic", "ExecMainExitTimestampMonotonic")
    moments = [
        began,
        int(prewarm["ExecMainStartTimestampMonotonic"]),
        int(prewarm["ExecMainExitTimestampMonotonic"]),
        int(server["ExecMainStartTimestampMonotonic"]),
        int(server["ActiveEnterTimestampMonotonic"]),
    ]
    listening = _moment(appliance, "listening on")
    spans = [(end - start) / SECOND_MICROSECONDS for start, end in pairwise(moments)]
    load_seconds = moments[4] / SECOND_MICROSECONDS - listening
    return (
        f"systemd {spans[0]:.1f} s, prewarm {spans[1]:.1f} s, server to its socket {spans[3] - load_seconds:.1f} s, "
        f"load and warm-up {load_seconds:.1f} s"
    )


def _moment(appliance: Appliance, text: str) -> float:
    """When the server said it last, in seconds of the monotonic clock."""
    journal = appliance.device.journal(UNIT, "--output=short-monotonic", "--boot")
    (line,) = [line for line in journal.splitlines() if text in line][-1:]
    return float(line[1:].split("]")[0])


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
