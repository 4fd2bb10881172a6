"""An uninstall that loses power, or meets a file that stays, can be run again until nothing is left."""

from __future__ import annotations

import subprocess
import time

import pytest
from tests.service.appliance import UNIT, Appliance
from tests.service.conftest import MakeAppliance, Say
from tests.service.upgrading import COMMAND

pytestmark = pytest.mark.thorough
RECORD = "usr/local/lib/edgellm/installed.json"
HOST_TOOL = "usr/local/lib/edgellm/host.pyz"
UNITS = "usr/local/lib/systemd/system"
CUT_DEADLINE_SECONDS = 60.0


@pytest.fixture(scope="module")
def appliance(make_appliance: MakeAppliance) -> Appliance:
    return make_appliance("uninstall").serve()


def own_files(appliance: Appliance) -> list[str]:
    """What an installation put onto the system, and is left."""
    root = appliance.device.root
    places = (f"{UNITS}/*edgellm*", f"{UNITS}/*edgellm*/*", "usr/local/bin/edgellm", "usr/local/lib/edgellm/*")
    return [path.relative_to(root).as_posix() for place in places for path in root.glob(place)]


def install_again(appliance: Appliance) -> None:
    appliance.install()
    appliance.start()
    assert appliance.chat().status_code == 200


def complete(appliance: Appliance) -> None:
    """As an administrator would: the same again, or an installation where the command is gone."""
    if not (appliance.device.root / COMMAND.lstrip("/")).exists() or not (appliance.device.root / HOST_TOOL).exists():
        appliance.install()
    done = appliance.device.run(COMMAND, "uninstall", check=False)
    assert done.code == 0 or "has not installed anything here" in done.output, done.output
    assert own_files(appliance) == []
    assert appliance.device.unit(UNIT, "LoadState")["LoadState"] == "not-found"


def test_a_file_that_stays_is_named_and_the_rest_goes_the_next_time(appliance: Appliance) -> None:
    """A mount on it: nothing removes that."""
    device, busy = appliance.device, f"/{UNITS}/edgellm-announce.service"
    device.run("mount", "--bind", busy, busy)
    refused = device.run(COMMAND, "uninstall", check=False)
    assert refused.code == 78
    assert f"{busy}: Device or resource busy" in refused.output
    assert (device.root / RECORD).exists()
    device.run("umount", busy)
    complete(appliance)
    install_again(appliance)


@pytest.mark.parametrize(
    "gone", [f"{UNITS}/{UNIT}", f"{UNITS}/edgellm-upgrade-recover.service", "usr/local/bin/edgellm", RECORD]
)
def test_an_uninstall_that_loses_power_is_completed(appliance: Appliance, gone: str, say: Say) -> None:
    device = appliance.device
    with subprocess.Popen(
        [*device.enter(), COMMAND, "uninstall"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        deadline = time.monotonic() + CUT_DEADLINE_SECONDS
        while (device.root / gone).exists() and process.poll() is None:
            assert time.monotonic() < deadline
        device.power_cut()
        process.kill()
    say(f"power cut when {gone} was gone: {len(own_files(appliance))} files were left")
    appliance.boot()
    complete(appliance)
    install_again(appliance)
