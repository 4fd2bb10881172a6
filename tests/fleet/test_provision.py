"""From bare devices to ones that serve: checked first, provisioned, and provisioned again without a change."""

from __future__ import annotations

from tests.fleet.fleet import NAMES, Fleet


def test_provision_makes_bare_devices_serve(fleet: Fleet) -> None:
    played = fleet.provisioned
    assert set(played.recap) == set(NAMES)
    for device in fleet.devices.values():
        assert fleet.chat(device).status_code == 200
