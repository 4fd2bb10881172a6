"""What goes wrong under way stays with the device that it went wrong on, and the next run mends it."""

from __future__ import annotations

import pytest
from tests.fleet.fleet import MODEL, NAMES, Fleet
from tests.lab.rootfs import check_output
from tests.service.conftest import Say


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
