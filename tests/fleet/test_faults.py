"""What goes wrong under way stays with the device that it went wrong on, and the next run mends it."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.control_host import API_KEY, FAILED, PLAYBOOK_DEADLINE_SECONDS, PORT
from tests.fleet.fleet import MODEL, MODELS, NAMES, SERVICE, SETTINGS, SHORT_CHAT, Fleet
from tests.fleet.rollout_fleet import GATEWAY_CERTIFICATE, SteadyClient
from tests.lab.device import Device
from tests.lab.rootfs import check_output
from tests.models.tiny_checkpoints import VARIANTS
from tests.models.tiny_gguf import write_gguf
from tests.service.conftest import Say

from edgellm.service.private_ca import PrivateCa

SSH_PORT = 22


@pytest.fixture(autouse=True)
def provisioned(fleet: Fleet) -> None:
    _ = fleet.provisioned


def test_an_archive_that_another_key_signed_is_not_imported(fleet: Fleet, say: Say) -> None:
    device = fleet.devices[NAMES[1]]
    device.run("systemctl", "stop", "edgellm.service")
    device.run("edgellm", "engine", "clear", "--json")
    (archive,) = (fleet.control.home / ".cache/edgellm/fleet/engines").glob("*.archive")
    signature, foreign = archive.with_name(f"{archive.name}.sig"), fleet.control.folder / "foreign"
    signature.unlink()
    check_output(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(foreign)])
    check_output(["ssh-keygen", "-Y", "sign", "-q", "-n", "edgellm-engine", "-f", str(foreign), str(archive)])

    refused = fleet.control.play("prewarm")
    assert {name: recap.failed for name, recap in refused.recap.items()} == {NAMES[0]: 0, NAMES[1]: 1, NAMES[2]: 0}
    assert "no key of /etc/edgellm/trusted-engine-keys signed it" in refused.output
    assert MODEL not in device.run("edgellm", "engine", "list").output
    assert device.run("ls", "-A", "/var/lib/edgellm-transfer", "/var/lib/edgellm/import").output.count("archive") == 0

    signature.unlink()  # the role signs it anew with the fleet's own key
    imported = fleet.control.play("prewarm")
    assert imported.code == 0, imported.output[-3000:]
    say(f"prewarm of {len(NAMES)} devices with one import: {imported.seconds:.0f} s; {fleet.build_times(fleet.first)}")
    assert "engines: imported" in imported.output
    assert "HIT" in device.run("edgellm", "engine", "explain").output  # before the service starts again
    assert fleet.builds(device) == 0
    device.run("systemctl", "start", "edgellm.service")
    assert fleet.chat(device).status_code == 200


def test_an_engine_that_is_somewhere_in_the_fleet_is_not_built_again(fleet: Fleet) -> None:
    """For a board alone: from another board where the control host has none, else from the control host."""
    device, limit = fleet.devices[NAMES[1]], NAMES[1:2]  # it has no model: it cannot build
    archives = fleet.control.home / ".cache/edgellm/fleet/engines"
    before = [fleet.builds(one) for one in fleet.devices.values()]
    for file in archives.glob("*.archive*"):
        file.unlink()
    device.run("systemctl", "stop", SERVICE)
    device.run("edgellm", "engine", "clear", "--json")
    fetched = fleet.control.play("prewarm", limit=limit)
    assert fetched.code == 0, fetched.output[-3000:]
    assert list(archives.glob("*.archive"))

    device.run("edgellm", "engine", "clear", "--json")
    with fleet.control.refused_key(fleet.first), fleet.control.refused_key(fleet.devices[NAMES[2]]):
        kept = fleet.control.play("prewarm", limit=limit)
    assert kept.code == 0, kept.output[-3000:]
    for played in (fetched, kept):
        assert "engines: imported" in played.output
    assert "HIT" in device.run("edgellm", "engine", "explain").output
    device.run("systemctl", "start", SERVICE)
    assert [fleet.builds(one) for one in fleet.devices.values()] == before


def ask_oddly(fleet: Fleet, device: Device) -> int:
    """What a request is answered that has an unknown field: 400, unless unknown_fields is "ignore"."""
    return fleet.control.ask(device, "/v1/chat/completions", body=SHORT_CHAT | {"no_such_field": 1}).status_code


def test_a_restart_that_a_failed_run_left_out_is_made_by_the_next(fleet: Fleet) -> None:
    device, limit = fleet.devices[NAMES[2]], NAMES[2:]
    changed = {"edgellm_settings": SETTINGS | {"server": {"host": "0.0.0.0", "unknown_fields": "ignore"}}}
    failed = fleet.control.play(
        "provision", variables={**changed, "edgellm_firewall_sources": ["no-address"]}, limit=limit
    )
    assert failed.code == FAILED
    assert "unknown_fields" in device.read("/etc/edgellm/edgellm.toml")
    assert ask_oddly(fleet, device) == 400
    mended = fleet.control.play("provision", variables=changed, limit=limit)
    assert mended.code == 0, mended.output[-3000:]
    assert "was started before a change of /etc/edgellm/edgellm.toml" in mended.output
    assert ask_oddly(fleet, device) == 200
    # A drop-in too that somebody else has written, and read into systemd, and has not started anything with.
    drop_in = "/etc/systemd/system/edgellm.service.d/50-own.conf"
    device.write(drop_in, "[Service]\nEnvironment=OF_A_TEST=1\n")
    device.run("systemctl", "daemon-reload")
    before = device.unit(SERVICE, "MainPID")
    taken_on = fleet.control.play("provision", variables=changed, limit=limit)
    assert f"was started before a change of {drop_in}" in taken_on.output
    assert device.unit(SERVICE, "MainPID") != before
    again = fleet.control.play("provision", variables=changed, limit=limit)
    assert again.recap[device.name].changed == 0, again.changed_tasks
    device.run("rm", drop_in)
    back = fleet.control.play("provision", limit=limit)
    assert back.code == 0, back.output[-3000:]
    assert ask_oddly(fleet, device) == 400


def test_rules_of_the_firewall_that_a_run_wrote_and_did_not_load_are_loaded_by_the_next(fleet: Fleet) -> None:
    device, other = fleet.devices[NAMES[2]], fleet.devices[NAMES[0]]
    rules = "/etc/edgellm/firewall.nft"
    wanted = device.read(rules)
    device.write(rules, wanted.replace("reject with tcp reset", "accept"))
    device.run("systemctl", "restart", "edgellm-firewall")
    device.write(rules, wanted)
    call = ["python3", "-c", f"import socket; socket.create_connection(('{device.address}', {PORT}), 10)"]
    assert other.run(*call).code == 0
    mended = fleet.control.play("provision", limit=NAMES[2:])
    assert mended.code == 0, mended.output[-3000:]
    assert "ConnectionRefusedError" in other.run(*call, check=False).output


def test_what_a_start_would_refuse_changes_nothing(fleet: Fleet, tmp_path: Path) -> None:
    device, limit = fleet.devices[NAMES[2]], NAMES[2:]
    one, other = PrivateCa(tmp_path / "one"), PrivateCa(tmp_path / "other")
    for authority in (one, other):
        authority.init([device.name])
    two_kinds = {
        "edgellm_tls": "given",
        "edgellm_tls_certificate": one.server_certificate.read_text(),
        "edgellm_tls_key": other.server_key.read_text(),
    }
    no_keys: dict[str, Any] = {"edgellm_api_keys": []}
    by_the_board = {"edgellm_control_command": ""}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"edgellm_api_keys": [{"name": "front desk", "key": API_KEY}]}, "edgellm_api_keys, row 1: a client's name"),
        ({"edgellm_api_keys": [{"name": "till", "key": "short"}]}, "edgellm_api_keys, row 1: a key has 16 characters"),
        (two_kinds, "on the control host refuses what edgellm_settings, keys and TLS make"),
        ({**two_kinds, **by_the_board}, f"{device.name} refuses what edgellm_settings, keys and TLS make"),
        (no_keys, "would let everyone who reaches this machine use the model"),
        ({**no_keys, **by_the_board}, "would let everyone who reaches this machine use the model"),
    ]
    for variables, said in wrong:
        played = fleet.control.play("provision", "-vvv", variables=variables, limit=limit)
        assert (played.code, played.recap[device.name].changed) == (FAILED, 0), played.output[-3000:]
        assert said in played.output
        assert API_KEY not in played.output
        assert two_kinds["edgellm_tls_key"].splitlines()[1] not in played.output
    assert device.run("ls", "/var/tmp").output.count("edgellm-candidate") == 0
    again = fleet.control.play("provision", limit=limit)
    assert again.recap[device.name].changed == 0, again.changed_tasks
    assert fleet.chat(device).status_code == 200


@pytest.mark.thorough
def test_a_change_goes_board_by_board_and_ends_at_the_first_that_it_is_no_good_for(
    fleet: Fleet, gateway_rootfs: Path
) -> None:
    """Behind a gateway: a client notices nothing, also where the first board does not come up again."""
    gateway = Device("gate1", fleet.control.folder / "gate1", gateway_rootfs, bridge=fleet.control.bridge)
    fleet.control.admit(gateway)
    del fleet.control.devices[gateway.name]
    inventory = json.loads((fleet.control.folder / "hosts.json").read_text())
    groups = inventory["all"]["children"]
    groups["gateway"] = {"hosts": {gateway.name: {"ansible_host": gateway.address}}}
    groups["edgellm"]["vars"]["edgellm_firewall_sources"] += [gateway.address]
    try:
        gateway.boot()
        (fleet.control.folder / "hosts.json").write_text(json.dumps(inventory))
        for playbook in ("gateway", "provision"):
            played = fleet.control.play(playbook)
            assert played.code == 0, played.output[-3000:]
        url, certificate = f"https://{gateway.address}/v1", gateway.root / GATEWAY_CERTIFICATE
        with SteadyClient(fleet.control.bridge, url, certificate) as client:
            client.wait_for_answers(2, gateway.wait_for)
            ignoring = SETTINGS | {"server": {"host": "0.0.0.0", "unknown_fields": "ignore"}}
            changed = fleet.control.play("provision", variables={"edgellm_settings": ignoring})
            assert changed.code == 0, changed.output[-3000:]
            client.wait_for_answers(2, gateway.wait_for)
            times = sorted(restarted_between(device) for device in fleet.devices.values())
            # Each was up before the next went down.
            assert all(after[0] > before[1] for before, after in pairwise(times))
            # No configuration to be found wrong before: another program has the port on the first board alone.
            first, last = fleet.first, fleet.devices[NAMES[2]]
            before = restarted_between(last)
            first.run("systemd-run", "--unit=in-the-way", "python3", "-m", "http.server", "8010")
            moved = SETTINGS | {"server": {"host": "0.0.0.0", "port": 8010}}
            failed = fleet.control.play("provision", variables={"edgellm_settings": moved})
            assert failed.code == FAILED
            assert "port 8010 on 0.0.0.0 is in use" in failed.output
            assert [failed.recap[name].failed for name in NAMES] == [1, 0, 0]
            assert restarted_between(last) == before
            client.wait_for_answers(2, gateway.wait_for)
            first.run("systemctl", "stop", "in-the-way")
        assert client.failures == []
    finally:
        fleet.write_inventory()
        gateway.remove()
        back = fleet.control.play("provision")
    assert back.code == 0, back.output[-3000:]


def restarted_between(device: Device) -> tuple[int, int]:
    """When the service was stopped last, and was ready after it; by the clock that all devices have."""
    shown = device.unit(SERVICE, "ActiveExitTimestampMonotonic", "ActiveEnterTimestampMonotonic")
    return int(shown["ActiveExitTimestampMonotonic"]), int(shown["ActiveEnterTimestampMonotonic"])


@pytest.mark.thorough
def test_an_archive_that_is_given_spares_the_build(fleet: Fleet) -> None:
    device = fleet.devices[NAMES[1]]  # it has no model: it cannot build
    device.run("edgellm", "engine", "clear", "--json")
    (archive,) = (fleet.control.home / ".cache/edgellm/fleet/engines").glob("*.archive")
    given = fleet.control.folder / "given"
    given.mkdir()
    for file in (archive, archive.with_name(f"{archive.name}.sig")):
        shutil.copy(file, given)
    variables = {"engine_cache_archives": [str(given / archive.name)]}
    played = fleet.control.play("prewarm", variables=variables, limit=[device.name])
    assert played.code == 0, played.output[-3000:]
    assert "HIT" in device.run("edgellm", "engine", "explain").output
    assert fleet.builds(device) == 0


@pytest.mark.thorough
def test_a_service_that_does_not_start_shows_its_journal_and_the_next_run_mends_it(fleet: Fleet) -> None:
    device = fleet.devices[NAMES[2]]
    taken = SETTINGS | {"server": {"host": "0.0.0.0", "port": SSH_PORT}}
    failed = fleet.control.play("provision", variables={"edgellm_settings": taken}, limit=[device.name])
    assert failed.code == FAILED
    assert "edgellm did not start:" in failed.output
    assert f"port {SSH_PORT}" in failed.output.partition("edgellm did not start:")[2]
    mended = fleet.control.play("provision", limit=[device.name])
    assert mended.code == 0, mended.output[-3000:]
    assert fleet.chat(device).status_code == 200


@pytest.mark.thorough
def test_a_bare_device_that_fails_under_way_is_finished_by_the_next_run(fleet: Fleet, say: Say) -> None:
    """First its disk is full, then its cable is pulled; the others are as they were."""
    device = fleet.add("dev4").boot()
    fleet.write_inventory()
    try:
        device.run("mkdir", "-p", "/opt/edgellm-releases")
        device.run("mount", "-t", "tmpfs", "-o", "size=8M", "tmpfs", "/opt/edgellm-releases")
        full = fleet.control.play("provision", limit=[NAMES[0], device.name])
        device.run("umount", "/opt/edgellm-releases")
        assert (full.recap[device.name].failed, full.recap[NAMES[0]].failed) == (1, 0)
        assert "No space left on device" in full.output
        assert device.run("test", "-e", "/opt/edgellm", check=False).code == 1

        started = fleet.control.start("provision", "--limit", f"{NAMES[0]},{device.name}")
        device.wait_for(lambda: list((device.root / "opt/edgellm-releases").glob("*/bin/pip")), "an environment", 300)
        fleet.control.bridge.unplug(device.name)
        output, _ = started.communicate(timeout=PLAYBOOK_DEADLINE_SECONDS)
        fleet.control.bridge.plug_in(device.name)
        recap = fleet.control.recap_of(output)
        assert (recap[device.name].unreachable, recap[NAMES[0]].failed) == (1, 0), output
        assert fleet.chat(fleet.first).status_code == 200

        played = fleet.control.play("provision", limit=[NAMES[0], device.name])
        assert played.code == 0, played.output[-3000:]
        assert played.recap[NAMES[0]].changed == 0, played.changed_tasks
        say(f"a fourth device, from half an environment: {played.seconds:.0f} s")
        assert fleet.chat(device).status_code == 200
        assert fleet.builds(device) == 0
    finally:
        fleet.drop(device.name)


@pytest.mark.thorough
def test_a_device_of_another_kind_builds_an_engine_of_its_own(fleet: Fleet, tmp_path: Path) -> None:
    """One that has the engines of its kind is in the same run."""
    write_gguf(tmp_path / "little.gguf", VARIANTS["llama"], "Q8_0")
    tmp_path.chmod(0o755)
    device = fleet.add("dev5", {f"{MODELS}/little": tmp_path}).boot()
    other_model = SETTINGS | {"models": [{"source": f"{MODELS}/little/little.gguf"}]}
    fleet.write_inventory(dev5={"edgellm_settings": other_model})
    try:
        before = fleet.builds(fleet.first)
        played = fleet.control.play("provision", limit=[NAMES[0], device.name])
        assert played.code == 0, played.output[-3000:]
        assert (fleet.builds(fleet.first), fleet.builds(device)) == (before, 1)
        assert fleet.chat(device).status_code == 200
    finally:
        fleet.drop(device.name)
