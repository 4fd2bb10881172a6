"""A board as a process in a network of its own, so that it can vanish as one does whose cable is pulled."""

from __future__ import annotations

import ipaddress
import os
import shutil
import subprocess
from collections.abc import Sequence

from tests.lab.privileges import missing_privileges
from tests.lab.rootfs import check_output

TEST_RANGE = ipaddress.ip_network("198.18.0.0/15")
_UPLINK = "uplink"


def why_not() -> str:
    """What this machine lacks, or ""."""
    if missing := missing_privileges():
        return missing
    absent = [tool for tool in ("ip", "nsenter") if shutil.which(tool) is None]
    return f"needs {' and '.join(absent)}" if absent else ""


class BoardNetwork:
    """A namespace that is joined to this machine by one cable; gone with ``remove``."""

    def __init__(self, number: int) -> None:
        self.name = f"edgellm-gw-{os.getpid()}-{number}"
        self._cable = f"egw{os.getpid() % 100000}n{number}"
        # Four addresses of the range for tests of devices that no other run on this machine has.
        block = TEST_RANGE[4 * ((os.getpid() * 16 + number) % (TEST_RANGE.num_addresses // 4))]
        self.gateway_address, self.address = str(block + 1), str(block + 2)
        check_output(["ip", "netns", "add", self.name])
        check_output(["ip", "link", "add", self._cable, "type", "veth", "peer", "name", _UPLINK, "netns", self.name])
        check_output(["ip", "addr", "add", f"{self.gateway_address}/30", "dev", self._cable])
        check_output(["ip", "link", "set", self._cable, "up"])
        self._within("addr", "add", f"{self.address}/30", "dev", _UPLINK)
        self._within("link", "set", "lo", "up")
        self.plug_in()

    def inside(self, command: Sequence[str]) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.name}", *command]

    def unplug(self) -> None:
        """Nothing comes from the board any more, not even the end of its connections."""
        self._within("link", "set", _UPLINK, "down")

    def plug_in(self) -> None:
        self._within("link", "set", _UPLINK, "up")

    def remove(self) -> None:
        subprocess.run(["ip", "link", "del", self._cable], capture_output=True, check=False)
        check_output(["ip", "netns", "del", self.name])

    def _within(self, *words: str) -> None:
        check_output(["ip", "-n", self.name, *words])
