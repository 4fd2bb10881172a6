"""From bare devices to ones that serve: checked first, provisioned, and provisioned again without a change."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from tests.fleet.control_host import API_KEY, PORT
from tests.fleet.fleet import NAMES, SERVICE, Fleet
from tests.service.conftest import Say

from edgellm.service.private_ca import PrivateCa

HUB_TOKEN = "planted-token-of-the-hub-77ac"  # noqa: S105  # of this test alone
FACTORY_NAME = "tegra-ubuntu"  # what a board calls itself that nobody has named
SWAP_TASKS = tuple(
    f"edgellm.appliance.device : {name}"
    for name in ("Make the swap file", "Install its unit", "Use it, now and after each boot")
)
NO_TOOLS = (
    "nvpmodel is not on this machine",
    "jetson_clocks is not on this machine",
    "nvzramconfig is not on this machine",
    "no display manager is on this machine",
    "no package of L4T is on this machine",
)


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
    assert "DEPRECATION WARNING" not in played.output  # the next Ansible takes the roles as they are


@pytest.mark.thorough
@pytest.mark.parametrize("playbook", ["provision", "prewarm", "verify"])
def test_check_mode_finds_nothing_to_change_on_provisioned_devices(fleet: Fleet, playbook: str) -> None:
    played = fleet.control.play(playbook, "--check", limit=NAMES[:1])
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
    wanted = {"preflight_memory_min_mib": 1 << 30, "preflight_board_required": True}
    played = fleet.control.play("provision", variables=wanted, limit=NAMES[2:])
    recap = played.recap[NAMES[2]]
    assert (recap.failed, recap.changed) == (1, 0)
    assert f"{NAMES[2]} was not touched" in played.output
    assert "memory: found" in played.output
    assert "board: found no Jetson" in played.output


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


@pytest.mark.thorough
def test_what_a_device_lacks_is_said_and_a_swap_file_comes_and_goes(fleet: Fleet) -> None:
    device, limit = fleet.devices[NAMES[2]], NAMES[2:]
    wanted = {
        "device_power_mode": "MAXN",
        "device_clocks_locked": True,
        "device_zram": "on",
        "device_desktop": "off",
        "device_l4t_held": True,
        "device_swap_file_mib": 16,
    }
    played = fleet.control.play("provision", "--tags", "device", variables=wanted, limit=limit)
    assert played.code == 0, played.output[-3000:]
    assert [words for words in NO_TOOLS if words not in played.output] == []
    assert device.run("stat", "--format=%s %a", "/var/lib/edgellm.swap").output.split() == [str(16 << 20), "600"]
    assert [task for task in played.changed_tasks if not task.startswith(SWAP_TASKS)] == []
    again = fleet.control.play("provision", "--tags", "device", variables=wanted, limit=limit)
    assert again.recap[device.name].changed == 0, again.changed_tasks
    gone = fleet.control.play("provision", "--tags", "device", variables={"device_swap_file_mib": 0}, limit=limit)
    assert gone.code == 0, gone.output[-3000:]
    assert device.run("test", "-e", "/var/lib/edgellm.swap", check=False).code == 1


@pytest.mark.thorough
def test_a_certificate_and_a_token_from_a_vault_are_never_printed(fleet: Fleet, tmp_path: Path) -> None:
    device, authority = fleet.devices[NAMES[2]], PrivateCa(tmp_path)
    authority.init([device.name, device.address])
    certificate, key = authority.server_certificate.read_text(), authority.server_key.read_text()
    given = {
        "edgellm_tls": "given",
        "edgellm_tls_certificate": certificate,
        "edgellm_tls_key": key,
        "edgellm_hub_token": HUB_TOKEN,
    }
    played = fleet.control.play("provision", "-vvv", "--diff", variables=given, limit=NAMES[2:])
    assert played.code == 0, played.output[-3000:]
    assert [line for line in key.splitlines() if not line.startswith("-") and line in played.output] == []
    assert HUB_TOKEN not in played.output
    assert HUB_TOKEN not in device.journal()
    assert device.read("/etc/edgellm/credentials/hub-token").strip() == HUB_TOKEN
    for name in ("hub-token", "tls-key"):
        shown = device.run("stat", "--format=%U:%G %a", f"/etc/edgellm/credentials/{name}").output
        assert shown.strip() == "root:edgellm 640"
    assert fleet.control.ask(device, "/v1/models", authority=authority.ca_certificate).status_code == 200


@pytest.mark.thorough
def test_a_board_s_own_keys_and_certificate_come_to_the_control_host(fleet: Fleet) -> None:
    device = fleet.devices[NAMES[2]]
    own = {"edgellm_api_keys": [], "edgellm_clients": ["till", "kiosk"], "edgellm_tls": "made"}
    device.run("hostname", FACTORY_NAME)
    played = fleet.control.play("provision", "-vvv", variables=own, limit=NAMES[2:])
    device.run("hostname", device.name)
    assert played.code == 0, played.output[-3000:]
    kept = fleet.control.home / ".cache/edgellm/fleet"
    key = (kept / "keys" / device.name / "till").read_text().strip()
    assert key not in played.output
    authority = kept / f"authorities/{device.name}.crt"
    assert fleet.control.ask(device, "/v1/models", key=key, authority=authority).status_code == 200
    # As a gateway asks: by the name in the inventory.
    assert fleet.control.ask(device, "/v1/models", key=key, authority=authority, named=device.name).status_code == 200
    with pytest.raises(httpx.TransportError):
        fleet.control.ask(device, "/v1/models", key=key)

    # Who leaves the variables has no key any more; one that the board's own administrator made holds on.
    def answer(client_key: str) -> int:
        return fleet.control.ask(device, "/v1/models", key=client_key, authority=authority).status_code

    gone = (kept / "keys" / device.name / "kiosk").read_text().strip()
    with_file = ("env", "EDGELLM_SERVER_API_KEYS_FILE=/etc/edgellm/credentials/api-keys")
    made = device.run(*with_file, "edgellm", "keys", "add", "administrator").output
    administrators = next(line for line in made.splitlines() if line.startswith("edgellm-"))
    device.wait_for(lambda: answer(administrators) == 200, "the key to hold")
    assert [answer(one) for one in (gone, API_KEY)] == [200, 401]
    name = "llm.example.org"
    fewer = fleet.control.play(
        "provision", variables=own | {"edgellm_clients": ["till"], "edgellm_tls_names": [name]}, limit=NAMES[2:]
    )
    assert fewer.code == 0, fewer.output[-3000:]
    device.wait_for(lambda: answer(gone) == 401, "the key to be revoked")
    assert [answer(one) for one in (key, administrators)] == [200, 200]
    assert not (kept / "keys" / device.name / "kiosk").exists()
    # The certificate of before had not the further name.
    assert fleet.control.ask(device, "/v1/models", key=key, authority=authority, named=name).status_code == 200
    again = fleet.control.play(
        "provision", variables=own | {"edgellm_clients": ["till"], "edgellm_tls_names": [name]}, limit=NAMES[2:]
    )
    assert again.recap[device.name].changed == 0, again.changed_tasks
    alone = {"edgellm_clients": ["till"], "edgellm_other_keys_revoked": True}
    told = fleet.control.play("provision", variables=own | alone, limit=NAMES[2:])
    assert told.code == 0, told.output[-3000:]
    device.wait_for(lambda: answer(administrators) == 401, "the key to be revoked")
    assert answer(key) == 200
    back = fleet.control.play("provision", limit=NAMES[2:])
    assert back.code == 0, back.output[-3000:]
    assert fleet.chat(device).status_code == 200
    assert fleet.chat(device, key=key).status_code == 401
    assert device.run("ls", "/etc/edgellm/credentials").output.split() == ["api-keys"]
