"""Power that goes in or after each step of an upgrade: a whole release serves after the next boot, and the upgrade goes
on from there."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from itertools import count

import pytest
from tests.service.appliance import READY_SECONDS, Appliance
from tests.service.conftest import MakeAppliance, Say
from tests.service.release_wheels import FOLDER, ReleaseWheels
from tests.service.upgrading import releases_of, serving_version, upgrade, upgrading

from edgellm.host.host_state import Step, StepState

JOURNEY = "var/lib/edgellm-host/upgrade.json"
POLL_SECONDS = 0.002
MOMENT_DEADLINE_SECONDS = 120.0
MOMENTS = [(step, state) for step in Step for state in StepState]
# One where the release of before serves on, and one where the new one is there already.
QUICK_MOMENTS = [(Step.SWITCHED, StepState.DONE), (Step.SMOKE, StepState.DONE)]
VERSIONS = (f"0.{number}.0" for number in count(2))

Moment = tuple[Step, StepState]


@pytest.fixture(scope="module")
def appliance(make_appliance: MakeAppliance, releases: ReleaseWheels) -> Appliance:
    return make_appliance("upgrade-power", more={FOLDER: releases.folder}).serve()


def moments_reached(appliance: Appliance) -> list[Moment]:
    """As the device's disk has them; all of them once the upgrade is over."""
    with suppress(FileNotFoundError):
        steps = json.loads((appliance.device.root / JOURNEY).read_text())["steps"]
        return [(Step(one["step"]), StepState(one["state"])) for one in steps]
    return []


def cut_power_at(appliance: Appliance, moment: Moment, source: str) -> list[Moment]:
    """During an upgrade to the source; what it had written down by then, which may be more where steps are short."""
    deadline = time.monotonic() + MOMENT_DEADLINE_SECONDS
    with upgrading(appliance, source, "--keep", "1") as process:
        while moment not in moments_reached(appliance) and process.poll() is None:
            assert time.monotonic() < deadline, f"{moment} did not come"
            time.sleep(POLL_SECONDS)
        assert process.poll() in (None, 0), process.stdout and process.stdout.read()
        appliance.device.power_cut()
    return moments_reached(appliance)


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(
            (step, state),
            id=f"{step.value}-{state.value}",
            marks=() if (step, state) in QUICK_MOMENTS else pytest.mark.thorough,
        )
        for step, state in MOMENTS
    ],
)
def test_after_a_power_cut_a_whole_release_serves_and_the_upgrade_goes_on(
    appliance: Appliance, releases: ReleaseWheels, moment: Moment, say: Say
) -> None:
    before, after = serving_version(appliance), next(VERSIONS)
    reached = cut_power_at(appliance, moment, releases.good(after))
    has_arrived = (Step.SMOKE, StepState.DONE) in reached or not reached
    began = time.monotonic()
    appliance.boot()
    appliance.device.wait_for(appliance.is_active, "a server", READY_SECONDS)
    seconds = time.monotonic() - began
    assert serving_version(appliance) == (after if has_arrived else before)
    assert appliance.chat().status_code == 200
    listed = releases_of(appliance)
    assert listed["current"]["version"] == (after if has_arrived else before)
    if has_arrived:
        assert listed["under_way"] is None
        assert listed["last"]["result"] == "upgraded"
    else:
        assert listed["under_way"]["interrupted"] is True
        assert listed["under_way"]["steps"][-1] == {"step": reached[-1][0].value, "state": reached[-1][1].value}
        resumed = upgrade(appliance, "--resume")
        assert resumed.code == 0, resumed.output
        assert resumed.report["result"] == "upgraded"
    assert serving_version(appliance) == after
    assert appliance.chat().status_code == 200
    assert releases_of(appliance)["under_way"] is None
    cut_at = f"{reached[-1][0].value} {reached[-1][1].value}" if reached else "its end"
    say(f"power cut at {cut_at}: {after if has_arrived else before} ready {seconds:.1f} s after the boot began")
