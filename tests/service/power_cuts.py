"""Power that goes at a step of an upgrade which the state file names, and what must be so after the next boot."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
from _pytest.mark import ParameterSet
from tests.service.appliance import READY_SECONDS, Appliance
from tests.service.upgrading import releases_of, upgrade, upgrading

from edgellm.host.host_state import Step, StepState

JOURNEY = "var/lib/edgellm-host/upgrade.json"
POLL_SECONDS = 0.002
MOMENT_DEADLINE_SECONDS = 120.0
Moment = tuple[Step, StepState]
MOMENTS: list[Moment] = [(step, state) for step in Step for state in StepState]


def moments(*quick: Moment) -> list[ParameterSet]:
    """For ``pytest.mark.parametrize``: each of them, those that are not quick marked as thorough."""
    return [
        pytest.param(
            (step, state),
            id=f"{step.value}-{state.value}",
            marks=() if (step, state) in quick else pytest.mark.thorough,
        )
        for step, state in MOMENTS
    ]


@dataclass(frozen=True, slots=True)
class Cut:
    """``reached`` is what was written down by then; all of it, and so nothing, once the upgrade is over."""

    reached: list[Moment]

    @property
    def has_arrived(self) -> bool:
        """Only bookkeeping was left: the new release serves."""
        return not self.reached or (Step.SMOKE, StepState.DONE) in self.reached

    def __str__(self) -> str:
        return f"{self.reached[-1][0].value} {self.reached[-1][1].value}" if self.reached else "its end"


def moments_reached(appliance: Appliance) -> list[Moment]:
    """As the device's disk has them."""
    with suppress(FileNotFoundError):
        steps = json.loads((appliance.device.root / JOURNEY).read_text())["steps"]
        return [(Step(one["step"]), StepState(one["state"])) for one in steps]
    return []


def cut_power_at(appliance: Appliance, moment: Moment, *arguments: str) -> Cut:
    """During an upgrade; more may be reached than that where steps are short."""
    return cut_power_when(appliance, lambda: moment in moments_reached(appliance), *arguments)


def cut_power_when(appliance: Appliance, has_come: Callable[[], bool], *arguments: str) -> Cut:
    deadline = time.monotonic() + MOMENT_DEADLINE_SECONDS
    with upgrading(appliance, *arguments) as process:
        while not has_come() and process.poll() is None:
            assert time.monotonic() < deadline, f"the moment did not come: {moments_reached(appliance)}"
            time.sleep(POLL_SECONDS)
        assert process.poll() in (None, 0), process.stdout and process.stdout.read()
        appliance.device.power_cut()
    return Cut(moments_reached(appliance))


def boot_after(cut: Cut, appliance: Appliance, serving_version: Callable[[], str], before: str, after: str) -> float:
    """Assert that a whole release serves and that the upgrade goes on from there; seconds from the boot to READY."""
    began = time.monotonic()
    appliance.boot()
    appliance.device.wait_for(appliance.is_active, "a server", READY_SECONDS)
    seconds = time.monotonic() - began
    assert serving_version() == (after if cut.has_arrived else before)
    assert appliance.chat().status_code == 200
    listed = releases_of(appliance)
    assert listed["current"]["version"] == (after if cut.has_arrived else before)
    if cut.has_arrived:
        assert listed["under_way"] is None
        assert listed["last"]["result"] == "upgraded"
    else:
        assert listed["under_way"]["interrupted"] is True
        step, state = cut.reached[-1]
        assert listed["under_way"]["steps"][-1] == {"step": step.value, "state": state.value}
        resumed = upgrade(appliance, "--resume")
        assert resumed.code == 0, resumed.output
        assert resumed.report["result"] == "upgraded"
    assert serving_version() == after
    assert appliance.chat().status_code == 200
    assert releases_of(appliance)["under_way"] is None
    return seconds
