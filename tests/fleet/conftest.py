"""Three devices on one network and the host that provisions them; both live as long as the session."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fleet.control_host import BIN, ControlHost
from tests.fleet.fleet import Fleet
from tests.fleet.rollout_fleet import RolloutFleet
from tests.lab.bridge import Bridge
from tests.lab.needs import need
from tests.lab.rootfs import extended_rootfs
from tests.lab.wheels import release_folder
from tests.service.conftest import (
    container_image,
    container_rootfs,
    device_folder,
    image_archive,
    model_folder,
    rootfs,
    say,
    wheel,
)

import edgellm

__all__ = ["container_image", "container_rootfs", "device_folder", "image_archive", "model_folder", "rootfs"]
__all__ += ["say", "wheel"]

# What an operator's board has beside systemd; it reaches no package index.
FLEET_PACKAGES = ("openssh-server", "sudo", "nftables", "avahi-daemon", "python3-apt")
GATEWAY_PACKAGES = ("haproxy", "socat", "openssl", "prometheus")
TOOLS = ("ssh", "ssh-keygen", "ip", "nsenter")


@pytest.fixture(scope="session")
def fleet_rootfs(rootfs: Path) -> Path:
    """Skips where there can be none; the gate has what it takes."""
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    has_ansible = (BIN / "ansible-playbook").exists()
    need(
        f"needs {' and '.join(absent)}" if absent else "",
        "" if has_ansible else "needs Ansible: sh daemon/setup/run fleet",
    )
    return extended_rootfs(rootfs, FLEET_PACKAGES)


@pytest.fixture(scope="session")
def fleet_folder(fleet_rootfs: Path) -> Iterator[Path]:
    """Short: sockets of ssh lie in it."""
    with tempfile.TemporaryDirectory(prefix="edgellm-fleet-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def bridge(fleet_folder: Path) -> Iterator[Bridge]:
    made = Bridge(fleet_folder.name).up()
    yield made
    made.remove()


@pytest.fixture(scope="session")
def gateway_rootfs(fleet_rootfs: Path) -> Path:
    """Devices reach no package index: what the roles of a gateway's host would install is there."""
    return extended_rootfs(fleet_rootfs, GATEWAY_PACKAGES)


@pytest.fixture(scope="session")
def wheels(fleet_folder: Path, wheel: Path) -> Path:
    return release_folder(wheel, fleet_folder / "wheels", edgellm.__version__)


@pytest.fixture(scope="session")
def fleet(fleet_rootfs: Path, fleet_folder: Path, bridge: Bridge, wheels: Path, model_folder: Path) -> Iterator[Fleet]:
    """Booted and bare. The first alone has the model: what serves on the others came with an engine."""
    control = ControlHost(fleet_folder / "control", bridge)
    control.install_collection()
    made = Fleet(control, fleet_rootfs, fleet_folder, wheels, model_folder)
    try:
        made.boot()
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="session")
def boards(fleet_rootfs: Path, gateway_rootfs: Path, wheel: Path, model_folder: Path) -> Iterator[RolloutFleet]:
    """Three that serve, behind a gateway."""
    with tempfile.TemporaryDirectory(prefix="edgellm-roll-") as name:
        folder = Path(name)
        bridge = Bridge(folder.name).up()
        try:
            made = RolloutFleet(folder, bridge, fleet_rootfs, gateway_rootfs, wheel, model_folder)
            try:
                yield made.serve()
            finally:
                made.remove()
        finally:
            bridge.remove()


@pytest.fixture(autouse=True)
def journals(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that fails shows what its devices wrote last."""
    failed_before = request.session.testsfailed
    yield
    if request.session.testsfailed > failed_before:
        for fleet in {"fleet", "boards"} & set(request.fixturenames):
            print(request.getfixturevalue(fleet).journals())
