"""From bare devices to ones that serve: checked first, provisioned, and provisioned again without a change."""

from __future__ import annotations

import httpx
import pytest
from tests.fleet.fleet import API_KEY, NAMES, PORT, SERVICE, Fleet
from tests.service.conftest import Say


@pytest.fixture(autouse=True)
def provisioned(fleet: Fleet) -> None:
    _ = fleet.provisioned


def test_check_mode_changes_nothing_on_bare_devices(fleet: Fleet) -> None:
    assert fleet.bare_check.code == 0, fleet.bare_check.output[-3000:]
    assert fleet.left_by_bare_check == ""


def test_provision_makes_bare_devices_serve(fleet: Fleet, say: Say) -> None:
    say(f"provision of {len(NAMES)} devices from bare: {fleet.provisioned.seconds:.0f} s")
    for device in fleet.devices.values():
        assert fleet.chat(device).status_code == 200
        assert fleet.chat(device, key="").status_code == 401


def test_identical_devices_build_an_engine_once(fleet: Fleet) -> None:
    assert [fleet.builds(device) for device in fleet.devices.values()] == [1, 0, 0]


def test_what_a_run_prints_holds_no_key(fleet: Fleet) -> None:
    assert "api-keys" in fleet.provisioned.output  # it does say what it writes
    assert API_KEY not in fleet.provisioned.output
    for device in fleet.devices.values():
        assert API_KEY not in device.journal()
        assert API_KEY not in device.read("/etc/edgellm/credentials/api-keys")


def test_a_second_run_changes_nothing(fleet: Fleet, say: Say) -> None:
    pids = [device.unit(SERVICE, "MainPID") for device in fleet.devices.values()]
    played = fleet.control.play("provision")
    say(f"second converge of {len(NAMES)} devices: {played.seconds:.0f} s")
    assert played.code == 0, played.output[-3000:]
    assert {name: recap.changed for name, recap in played.recap.items()} == dict.fromkeys(NAMES, 0), (
        played.changed_tasks
    )
    assert [device.unit(SERVICE, "MainPID") for device in fleet.devices.values()] == pids


def test_check_mode_finds_nothing_to_change_on_provisioned_devices(fleet: Fleet) -> None:
    played = fleet.control.play("provision", "--check", limit=NAMES[:1])
    assert played.code == 0, played.output[-3000:]
    assert played.recap[NAMES[0]].changed == 0, played.changed_tasks


def test_devices_are_what_the_roles_say(fleet: Fleet) -> None:
    for device in fleet.devices.values():
        host = fleet.asked(device)
        with fleet.asking():
            assert host.service("edgellm").is_running
            assert host.service("edgellm").is_enabled
            assert host.service("edgellm-prewarm").is_enabled
            assert host.service("avahi-daemon").is_running
            assert host.socket(f"tcp://0.0.0.0:{PORT}").is_listening
            keys = host.file("/etc/edgellm/credentials/api-keys")
            assert (keys.user, keys.group, keys.mode) == ("root", "edgellm", 0o640)
            assert host.file("/opt/edgellm").linked_to.startswith("/opt/edgellm-releases/")
            assert host.file("/etc/systemd/journald.conf.d/10-edgellm.conf").contains("SystemMaxUse=512M")
            assert host.check_output("sudo /etc/ansible/facts.d/edgellm_board.fact") == "{}"


def test_only_the_sources_reach_the_port(fleet: Fleet) -> None:
    one, other = fleet.devices[NAMES[0]], fleet.devices[NAMES[1]]
    call = f"import socket; socket.create_connection(('{one.address}', {PORT}), 10)"
    refused = other.run("python3", "-c", call, check=False)
    assert "ConnectionRefusedError" in refused.output
    assert one.run("python3", "-c", f"import socket; socket.create_connection(('127.0.0.1', {PORT}), 10)").code == 0


def test_a_machine_that_cannot_work_is_refused_before_it_is_touched(fleet: Fleet) -> None:
    played = fleet.control.play("provision", variables={"preflight_memory_min_mib": 1 << 30}, limit=NAMES[2:])
    recap = played.recap[NAMES[2]]
    assert (recap.failed, recap.changed) == (1, 0)
    assert f"{NAMES[2]} was not touched" in played.output
    assert "memory: found" in played.output


def test_variables_that_contradict_each_other_are_named_and_no_key_is(fleet: Fleet) -> None:
    played = fleet.control.play("provision", "-vvv", variables={"edgellm_clients": ["till"]}, limit=NAMES[2:])
    assert played.recap[NAMES[2]].failed == 1
    assert "edgellm_api_keys and edgellm_clients exclude each other" in played.output
    assert API_KEY not in played.output


def test_a_configuration_that_edgellm_refuses_reaches_no_device(fleet: Fleet) -> None:
    played = fleet.control.play("provision", variables={"edgellm_settings": {"server": {"hots": "x"}}}, limit=NAMES[2:])
    assert played.recap[NAMES[2]].failed == 1
    assert "unknown key server.hots" in played.output
    assert fleet.chat(fleet.devices[NAMES[2]]).status_code == 200


def test_a_board_s_own_keys_and_certificate_come_to_the_control_host(fleet: Fleet) -> None:
    device = fleet.devices[NAMES[2]]
    own = {"edgellm_api_keys": [], "edgellm_clients": ["till"], "edgellm_tls": "made"}
    played = fleet.control.play("provision", "-vvv", variables=own, limit=NAMES[2:])
    assert played.code == 0, played.output[-3000:]
    kept = fleet.control.home / ".cache/edgellm/fleet"
    key = (kept / "keys" / device.name / "till").read_text().strip()
    assert key not in played.output
    assert fleet.request(device, "/v1/models", key=key, authority=kept / f"authorities/{device.name}.crt").is_success
    with pytest.raises(httpx.TransportError):
        fleet.request(device, "/v1/models", key=key)
    back = fleet.control.play("provision", limit=NAMES[2:])
    assert back.code == 0, back.output[-3000:]
    assert fleet.chat(device).status_code == 200
