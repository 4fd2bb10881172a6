"""edgellm install on a device: once, again, in the other mode, and off again."""

from __future__ import annotations

import pytest
from tests.service.appliance import UNIT, Appliance
from tests.service.conftest import MakeAppliance

from edgellm.cli.install import HOST_UNITS


@pytest.fixture(scope="module")
def appliance(make_appliance: MakeAppliance) -> Appliance:
    return make_appliance("install").boot()


def test_the_second_install_changes_nothing(appliance: Appliance) -> None:
    assert appliance.install().output.endswith("venv, without a GPU: installed\n")
    assert appliance.install().output == "venv, without a GPU: nothing changed\n"
    for unit in (UNIT, "edgellm-prewarm.service", "edgellm-device-facts.service"):
        assert appliance.device.run("systemctl", "is-enabled", unit).output == "enabled\n"
    assert appliance.device.run("id", "-u", "edgellm").output == "780\n"


def test_systemd_finds_nothing_wrong_with_the_units(appliance: Appliance) -> None:
    units = (UNIT, "edgellm-prewarm.service", "edgellm-ready.target", "edgellm-announce.service", *HOST_UNITS)
    verified = appliance.device.run("systemd-analyze", "verify", "--man=no", *units, check=False)
    assert [line for line in verified.output.splitlines() if "edgellm" in line] == []


def test_the_other_mode_is_refused(appliance: Appliance) -> None:
    refused = appliance.command("install", "--mode", "container", check=False)
    assert refused.code == 78
    assert "edgellm uninstall" in refused.output


def test_the_command_works_on_the_service_s_own_store(appliance: Appliance) -> None:
    appliance.device.run("/usr/local/bin/edgellm", "prewarm")
    assert "smollm2" in appliance.device.run("/usr/local/bin/edgellm", "engine", "list").output
    owners = appliance.device.run("find", "/var/lib/edgellm/engines", "!", "-user", "edgellm").output
    assert owners == ""


def test_the_command_makes_an_authority_that_is_root_s_alone(appliance: Appliance) -> None:
    appliance.device.run("/usr/local/bin/edgellm", "tls", "init")
    kept = "/etc/edgellm/tls"
    assert appliance.device.run("stat", "--format=%U %a", f"{kept}/ca.key", f"{kept}/server.key").output == (
        "root 600\nroot 600\n"
    )


def test_an_uninstall_stops_the_server_and_leaves_models_and_configuration(appliance: Appliance) -> None:
    appliance.start()
    appliance.command("uninstall")
    state = appliance.device.unit(UNIT, "LoadState", "ActiveState")
    assert state == {"LoadState": "not-found", "ActiveState": "inactive"}
    assert appliance.device.run("test", "-e", "/etc/edgellm/edgellm.toml").code == 0
    assert appliance.device.run("sh", "-c", "ls -d /var/lib/edgellm/engines/smollm2*").code == 0
    assert appliance.device.run("systemctl", "--failed", "--no-legend").output == ""
    appliance.install()
    appliance.start()
    assert appliance.chat().status_code == 200
