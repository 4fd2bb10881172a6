"""edgellm install on a device: once, again, in the other mode, and off again."""

from __future__ import annotations

import pytest
from tests.service.appliance import UNIT, Appliance
from tests.service.conftest import MakeAppliance

from edgellm.cli.install import HOST_UNITS

COMMAND = "/usr/local/bin/edgellm"
OURS = "edgellm*"


@pytest.fixture(scope="module")
def appliance(make_appliance: MakeAppliance) -> Appliance:
    return make_appliance("install").boot()


def test_the_second_install_changes_nothing(appliance: Appliance) -> None:
    assert appliance.install().output.endswith("venv, without a GPU: installed\n")
    assert appliance.install().output == "venv, without a GPU: nothing changed\n"
    for unit in (UNIT, "edgellm-prewarm.service", "edgellm-device-facts.service"):
        assert appliance.device.run("systemctl", "is-enabled", unit).output == "enabled\n"
    assert appliance.device.run("id", "-u", "edgellm").output == "780\n"


def test_what_an_administrator_disabled_or_masked_stays_so(appliance: Appliance) -> None:
    prewarm = "edgellm-prewarm.service"
    appliance.device.run("systemctl", "disable", UNIT)
    appliance.device.run("systemctl", "mask", prewarm)
    assert appliance.install().output == "venv, without a GPU: nothing changed\n"
    assert appliance.device.run("systemctl", "is-enabled", UNIT, check=False).output == "disabled\n"
    assert appliance.device.run("systemctl", "is-enabled", prewarm, check=False).output == "masked\n"
    appliance.command("uninstall")
    installed = appliance.install().output
    assert "edgellm-prewarm.service is masked, and was not enabled — systemctl unmask edgellm-prewarm" in installed
    assert installed.endswith("venv, without a GPU: installed\n")
    assert appliance.device.run("systemctl", "is-enabled", UNIT).output == "enabled\n"
    appliance.device.run("systemctl", "unmask", prewarm)
    appliance.install()
    assert appliance.device.run("systemctl", "is-enabled", prewarm).output == "enabled\n"


def test_a_container_without_podman_is_said_and_no_dead_end(appliance: Appliance) -> None:
    appliance.command("uninstall")
    installed = appliance.command("install", "--mode", "container").output
    assert "podman is not there yet, and the service cannot start without it" in installed
    removed = appliance.device.run(COMMAND, "uninstall")
    assert "removed  /usr/local/bin/edgellm\n" in removed.output
    appliance.install()


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
    running = appliance.device.run("systemctl", "list-units", "--no-legend", "--plain", OURS).output
    assert "edgellm-device-facts.service" in running
    appliance.command("uninstall")
    assert appliance.device.run("systemctl", "list-units", "--all", "--no-legend", "--plain", OURS).output == ""
    state = appliance.device.unit(UNIT, "LoadState", "ActiveState")
    assert state == {"LoadState": "not-found", "ActiveState": "inactive"}
    assert appliance.device.run("test", "-e", "/etc/edgellm/edgellm.toml").code == 0
    assert appliance.device.run("sh", "-c", "ls -d /var/lib/edgellm/engines/smollm2*").code == 0
    assert appliance.device.run("systemctl", "--failed", "--no-legend").output == ""
    appliance.install()
    appliance.start()
    assert appliance.chat().status_code == 200


def test_a_changed_unit_is_no_dead_end(appliance: Appliance) -> None:
    unit = f"/usr/local/lib/systemd/system/{UNIT}"
    appliance.device.run("sh", "-c", f"echo '# by hand' >>{unit} && systemctl daemon-reload")
    removed = appliance.command("uninstall").output
    assert f"kept     {unit} (changed since: now {UNIT}.changed, and no unit)\n" in removed
    assert appliance.device.unit(UNIT, "LoadState") == {"LoadState": "not-found"}
    appliance.command("install", "--mode", "container")
    appliance.command("uninstall")
    assert appliance.device.read(f"{unit}.changed").endswith("# by hand\n")
    appliance.install()
    appliance.start()


def test_a_server_that_goes_on_keeps_its_files(appliance: Appliance) -> None:
    """Systemd refuses to stop it, as an administrator may have told it to."""
    appliance.drop_in("unstoppable", "[Unit]\nRefuseManualStop=yes\n")
    refused = appliance.command("uninstall", check=False)
    assert refused.code == 78
    assert refused.output.count("\n") == 1
    assert f"{UNIT} goes on, so that nothing was removed: systemctl stop" in refused.output
    assert appliance.chat().status_code == 200
    appliance.device.run("rm", f"/etc/systemd/system/{UNIT}.d/unstoppable.conf")
    appliance.device.run("systemctl", "daemon-reload")
    appliance.command("uninstall")
    assert appliance.device.unit(UNIT, "ActiveState") == {"ActiveState": "inactive"}
