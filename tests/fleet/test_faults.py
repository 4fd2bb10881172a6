"""What goes wrong under way stays with the device that it went wrong on, and the next run mends it."""

from __future__ import annotations

import threading

import pytest
from tests.fleet.fleet import MODEL, NAMES, Fleet
from tests.lab.rootfs import check_output
from tests.service.conftest import Say

UNREACHED = NAMES[2]


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


def test_a_host_key_that_changed_ends_the_run_on_that_device_alone(fleet: Fleet) -> None:
    known = fleet.control.known_hosts.read_text()
    other = fleet.control.folder / "other"
    check_output(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)])
    public = " ".join(other.with_suffix(".pub").read_text().split()[:2])
    address = fleet.devices[UNREACHED].address
    lines = [f"{address} {public}" if line.startswith(f"{address} ") else line for line in known.splitlines()]
    fleet.control.known_hosts.write_text("\n".join(lines) + "\n")
    try:
        fleet.control.forget_connections()
        played = fleet.control.play("prewarm")
    finally:
        fleet.control.known_hosts.write_text(known)
    assert {name: recap.unreachable for name, recap in played.recap.items()} == {
        name: int(name == UNREACHED) for name in NAMES
    }
    assert "Host key verification failed" in played.output


def test_a_device_that_is_lost_midway_holds_up_no_other(fleet: Fleet) -> None:
    device = fleet.devices[UNREACHED]
    running = fleet.control.start("provision")
    assert running.stdout is not None
    lines: list[str] = []
    for line in running.stdout:
        lines.append(line)
        if "edgellm : Look for an installed release" in line:
            threading.Thread(target=device.power_cut).start()
    running.wait()
    recap = fleet.control.recap_of("".join(lines))
    assert {name: (row.unreachable, row.failed) for name, row in recap.items()} == {
        name: (int(name == UNREACHED), 0) for name in NAMES
    }
    device.boot()
    again = fleet.control.play("provision", limit=[UNREACHED])
    assert again.code == 0, again.output[-3000:]
    assert fleet.chat(device).status_code == 200


def test_a_full_disk_fails_that_device_and_the_next_run_goes_on(fleet: Fleet) -> None:
    device = fleet.add("dev4")
    fleet.write_inventory()
    try:
        device.boot()
        device.run("mount", "-t", "tmpfs", "-o", "size=24m,mode=0755", "tmpfs", "/opt")
        full = fleet.control.play("provision", limit=["dev4"])
        assert full.recap["dev4"].failed == 1
        assert "No space left on device" in full.output
        device.run("umount", "/opt")
        played = fleet.control.play("provision", limit=["dev4"])
        assert played.code == 0, played.output[-3000:]
        assert fleet.chat(device).status_code == 200
    finally:
        fleet.drop("dev4")
