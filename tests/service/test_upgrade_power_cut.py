"""Power that goes in or after each step of an upgrade: a whole release serves after the next boot, and the upgrade goes
on from there."""

from __future__ import annotations

from itertools import count

import pytest
from tests.service.appliance import Appliance
from tests.service.conftest import MakeAppliance, Say
from tests.service.power_cuts import Moment, boot_after, cut_power_at, moments
from tests.service.release_wheels import FOLDER, ReleaseWheels
from tests.service.upgrading import serving_version

from edgellm.host.host_state import Step, StepState

# One where the release of before serves on, and one where the new one is there already.
QUICK_MOMENTS = [(Step.SWITCHED, StepState.DONE), (Step.SMOKE, StepState.DONE)]
VERSIONS = (f"0.{number}.0" for number in count(2))


@pytest.fixture(scope="module")
def appliance(make_appliance: MakeAppliance, releases: ReleaseWheels) -> Appliance:
    return make_appliance("upgrade-power", more={FOLDER: releases.folder}).serve()


@pytest.mark.parametrize("moment", moments(*QUICK_MOMENTS))
def test_after_a_power_cut_a_whole_release_serves_and_the_upgrade_goes_on(
    appliance: Appliance, releases: ReleaseWheels, moment: Moment, say: Say
) -> None:
    before, after = serving_version(appliance), next(VERSIONS)
    cut = cut_power_at(appliance, moment, releases.good(after), "--keep", "1")
    seconds = boot_after(cut, appliance, lambda: serving_version(appliance), before, after)
    say(f"power cut at {cut}: {after if cut.has_arrived else before} ready {seconds:.1f} s after the boot began")
