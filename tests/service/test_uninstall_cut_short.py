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


@pytest.fixture
def whole(appliance: Appliance) -> list[str]:
    """What an installation puts onto the system."""
    return own_files(appliance)


def own_files(appliance: Appliance) -> list[str]:
    """Those that are left."""
    root = appliance.device.root
    places = (f"{UNITS}/*edgellm*", f"{UNITS}/*edgellm*/*", "usr/local/bin/edgellm", "usr/local/lib/edgellm/*")
    return sorted(path.relative_to(root).as_posix() for place in places for path in root.glob(place) if path.is_file())


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


def uninstall_up_to(appliance: Appliance, whole: list[str], name: str) -> None:
    """A mount lies on the file, which nothing removes: what comes before it is gone, it and the rest are there."""
    appliance.device.run("mount", "--bind", f"/{name}", f"/{name}")
    refused = appliance.device.run(COMMAND, "uninstall", check=False)
    assert refused.code == 78
    assert f"removed in part only: /{name}: Device or resource busy — mend that, then run edgellm uninstall again" in (
        refused.output
    )
    left = own_files(appliance)
    assert {name, RECORD} <= {*left}
    assert len(left) < len(whole)


def test_a_file_that_stays_is_named_and_the_rest_goes_the_next_time(appliance: Appliance, whole: list[str]) -> None:
    uninstall_up_to(appliance, whole, f"{UNITS}/edgellm-announce.service")
    appliance.device.run("umount", f"/{UNITS}/edgellm-announce.service")
    complete(appliance)
    install_again(appliance)
    assert own_files(appliance) == whole


@pytest.mark.parametrize(
    "name", [f"{UNITS}/{UNIT}", f"{UNITS}/edgellm-upgrade-recover.service", COMMAND.lstrip("/"), HOST_TOOL]
)
def test_an_uninstall_that_lost_power_halfway_is_completed(
    appliance: Appliance, whole: list[str], name: str, say: Say
) -> None:
    uninstall_up_to(appliance, whole, name)
    say(f"power cut at {name}: {len(own_files(appliance))} of {len(whole)} files left")
    appliance.device.power_cut()
    appliance.boot()
    assert not appliance.is_active(), "what is removed in part does not serve"
    complete(appliance)
    install_again(appliance)


def test_an_uninstall_that_lost_power_is_undone_by_an_installation(appliance: Appliance, whole: list[str]) -> None:
    uninstall_up_to(appliance, whole, HOST_TOOL)
    appliance.device.power_cut()
    appliance.boot()
    install_again(appliance)
    assert own_files(appliance) == whole
    appliance.device.reboot()
    appliance.wait_until_active()


def test_power_goes_while_it_removes(appliance: Appliance, say: Say) -> None:
    device = appliance.device
    with subprocess.Popen(
        [*device.enter(), COMMAND, "uninstall"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        deadline = time.monotonic() + CUT_DEADLINE_SECONDS
        while (device.root / UNITS / UNIT).exists() and process.poll() is None:
            assert time.monotonic() < deadline
        device.power_cut()
        process.kill()
    say(f"power cut when {UNIT} was gone: {len(own_files(appliance))} files were left")
    appliance.boot()
    complete(appliance)
    install_again(appliance)
