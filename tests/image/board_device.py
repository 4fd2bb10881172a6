"""A device that was given an image as a board is: nothing of edgellm but what is in the image."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.lab.bridge import Bridge
from tests.lab.device import IMAGES, Device
from tests.lab.fixtures import MakeDevice
from tests.lab.forwarding import ForwardedPort
from tests.service.appliance import DEPENDENCIES, PORT, READY_SECONDS, UNIT, dependencies_folder
from tests.service.container_appliance import LAB_QUADLET

from board_image.assembly import apply
from edgellm.host.first_boot_state import BootStep

FIRST_BOOT = "edgellm-first-boot.service"
NOTICE = "edgellm-pairing-notice.service"
STATE = "var/lib/edgellm-host/first-boot.json"
ISSUE = "/run/issue.d/edgellm.issue"
KEPT_CODE = "/var/lib/edgellm-host/pairing-code.json"
BOOT_DEADLINE_SECONDS = 300.0
CUT_POLL_SECONDS = 0.005
STEP_DEADLINE_SECONDS = 120.0
MOMENTS = [(step, state) for step in BootStep for state in ("begun", "done")]
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
            name, rootfs, read_only=read_only, bridge=network, runs_containers=runs_containers, has_terminal=True
        )
        self.device.boot_deadline_seconds = BOOT_DEADLINE_SECONDS
        for unit in ("edgellm", "edgellm-prewarm") if runs_containers else ():
            self.device.write(f"/etc/containers/systemd/{unit}.container.d/lab.conf", LAB_QUADLET)
        self._image = image
        self.lay_over()

    def lay_over(self) -> None:
        """The image, as it is flashed: over what is there."""
        apply(self._image, self.device.root)

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

    def power_cut_at(self, step: BootStep, state: str) -> str:
        """In the next boot; the last step that was reached then. What was done before stays done."""

        def has_come() -> bool:
            wanted = ("begun", "done") if state == "begun" else ("done",)
            return self.steps().get(step.value, {}).get("state") in wanted

        return self.power_cut_when(has_come)

    def power_cut_when(self, has_come: Callable[[], bool]) -> str:
        before = self.steps()
        self.device.start_booting()
        deadline = time.monotonic() + STEP_DEADLINE_SECONDS
        while not has_come():
            assert time.monotonic() < deadline, self.device.console[-3000:]
            time.sleep(CUT_POLL_SECONDS)
        self.device.power_cut()
        reached = self.steps()
        assert {name: before[name] for name in before if before[name]["state"] == "done"}.items() <= reached.items()
        assert [name for name in reached if reached[name]["state"] == "begun"] in ([], [list(reached)[-1]])
        return f"{list(reached)[-1]} {reached[list(reached)[-1]]['state']}"

    def forget_the_end_of(self, step: BootStep) -> None:
        """While it is off: as if power had gone when all of the step was done, and not written down yet."""
        steps = dict(self.steps())
        kept = list(BootStep)[: list(BootStep).index(step) + 1]
        steps = {one.value: steps[one.value] for one in kept}
        steps[step.value] = {**steps[step.value], "state": "begun"}
        file = self.device.root / STATE
        file.write_text(json.dumps({**json.loads(file.read_text()), "steps": steps}))

    def pairing_code(self) -> str:
        """As somebody at the console reads it."""
        self.device.wait_for(lambda: (self.device.root / ISSUE.lstrip("/")).exists() or self._has_issue(), "the code")
        (line,) = [line for line in self.device.read(ISSUE).splitlines() if "edgellm pair " in line]
        return line.split()[-1]

    def _has_issue(self) -> bool:
        return self.device.run("test", "-s", ISSUE, check=False).code == 0

    def files_with(self, text: str) -> list[str]:
        """Of the whole board, with what its processes were called with and have in their environment."""
        search = f"""
            cat >/dev/shm/searched
            {{ find / -xdev -type f; find /run /tmp /dev/shm {IMAGES} -type f; ls -d /proc/[0-9]*/cmdline \\
                /proc/[0-9]*/environ; }} 2>/dev/null | tr '\\n' '\\0' |
                xargs -0 grep --files-with-matches -saF -f /dev/shm/searched --
            rm /dev/shm/searched
        """
        found = self.device.run("sh", "-c", search, stdin=text, check=False)
        return sorted({*found.output.splitlines()} - {"/dev/shm/searched"})

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
