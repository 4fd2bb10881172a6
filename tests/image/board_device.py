"""A device that was given an image as a board is: nothing of edgellm but what is in the image."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.lab.bridge import Bridge
from tests.lab.device import Device
from tests.lab.fixtures import MakeDevice
from tests.lab.forwarding import ForwardedPort
from tests.service.appliance import DEPENDENCIES, PORT, READY_SECONDS, UNIT, dependencies_folder
from tests.service.container_appliance import LAB_QUADLET

from board_image.assembly import apply

FIRST_BOOT = "edgellm-first-boot.service"
NOTICE = "edgellm-pairing-notice.service"
STATE = "var/lib/edgellm-host/first-boot.json"
ISSUE = "/run/issue.d/edgellm.issue"
BOOT_DEADLINE_SECONDS = 300.0
IDENTITY_FILES = (
    "etc/machine-id",
    "etc/hostname",
    "etc/ssh/ssh_host_ed25519_key",
    "etc/edgellm/tls/ca.crt",
    "etc/edgellm/credentials/api-keys",
    "etc/edgellm/credentials/tls-certificate",
    "var/lib/edgellm-host/device-key",
)


class BoardDevice:
    def __init__(
        self,
        make_device: MakeDevice,
        name: str,
        rootfs: Path,
        image: Path,
        network: Bridge,
        *,
        runs_containers: bool = False,
    ) -> None:
        """``runs_containers`` is for an image with a container's archive: the board needs nothing beside it then."""
        read_only = {} if runs_containers else {DEPENDENCIES: dependencies_folder()}
        self.device: Device = make_device(
            name, rootfs, read_only=read_only, bridge=network, runs_containers=runs_containers
        )
        self.device.boot_deadline_seconds = BOOT_DEADLINE_SECONDS
        for unit in ("edgellm", "edgellm-prewarm") if runs_containers else ():
            self.device.write(f"/etc/containers/systemd/{unit}.container.d/lab.conf", LAB_QUADLET)
        apply(image, self.device.root)

    def boot(self) -> BoardDevice:
        """Return when the server is ready: a first boot makes an environment before."""
        self.device.boot()
        self.wait_until_served()
        return self

    def wait_until_served(self) -> None:
        def is_ready() -> bool:
            states = {unit: self.device.unit(unit, "ActiveState")["ActiveState"] for unit in (UNIT, FIRST_BOOT)}
            assert states[FIRST_BOOT] != "failed", self.device.journal(FIRST_BOOT)
            return states[UNIT] == "active"

        self.device.wait_for(is_ready, "a ready server", READY_SECONDS)

    def pairing_code(self) -> str:
        """As somebody at the console reads it."""
        self.device.wait_for(lambda: (self.device.root / ISSUE.lstrip("/")).exists() or self._has_issue(), "the code")
        (line,) = [line for line in self.device.read(ISSUE).splitlines() if "edgellm pair " in line]
        return line.split()[-1]

    def _has_issue(self) -> bool:
        return self.device.run("test", "-s", ISSUE, check=False).code == 0

    def steps(self) -> Mapping[str, Mapping[str, Any]]:
        path = self.device.root / STATE
        if not path.exists():
            return {}
        steps: Mapping[str, Mapping[str, Any]] = json.loads(path.read_text())["steps"]
        return steps

    def identity(self) -> dict[str, str]:
        return {name: (self.device.root / name).read_text() for name in IDENTITY_FILES}

    def forwarded(self) -> ForwardedPort:
        return ForwardedPort(self.device, PORT)
