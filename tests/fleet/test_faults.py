"""What goes wrong under way stays with the device that it went wrong on, and the next run mends it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.fleet.control_host import FAILED, PLAYBOOK_DEADLINE_SECONDS
from tests.fleet.fleet import MODEL, MODELS, NAMES, SERVICE, SETTINGS, Fleet
from tests.lab.rootfs import check_output
from tests.models.tiny_checkpoints import VARIANTS
from tests.models.tiny_gguf import write_gguf
from tests.service.conftest import Say

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
