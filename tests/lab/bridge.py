"""Bridge: a network of the laboratory's own, which devices and whoever runs in it share. Nothing leads out of it."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.lab.rootfs import check_output

_CLONE_NEWNET = 0x40000000
NETWORK = "10.77.0"
INTERFACE = "br0"
CABLE = "vb-"  # as nspawn names this end of it
T = TypeVar("T")


class Bridge:
    """``name`` is that of a network namespace; two of different names know nothing of each other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = f"{NETWORK}.1"
        self._next_host = 10

    def up(self) -> Bridge:
        check_output(["ip", "netns", "add", self.name])
        for command in (
            "link set lo up",
            f"link add {INTERFACE} type bridge forward_delay 0",
            f"address add {self.address}/24 dev {INTERFACE}",
            f"link set {INTERFACE} up",
        ):
            check_output(["ip", "-n", self.name, *command.split()])
        return self

    def remove(self) -> None:
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True, check=False)

    def new_address(self) -> str:
        self._next_host += 1
        return f"{NETWORK}.{self._next_host}"

    def unplug(self, device: str) -> None:
        """The cable of a device that runs: nothing goes to it or comes from it, and nobody is told."""
        check_output(["ip", "-n", self.name, "link", "set", f"{CABLE}{device}", "down"])

    def plug_in(self, device: str) -> None:
        check_output(["ip", "-n", self.name, "link", "set", f"{CABLE}{device}", "up"])

    def take_off(self, device: str) -> None:
        """The cable of a device that ended: the kernel does it too, but later, and a next start finds it in its way."""
        command = ["ip", "-n", self.name, "link", "delete", f"{CABLE}{device}"]
        subprocess.run(command, capture_output=True, check=False)

    def enter(self) -> list[str]:
        """What to put before a command so that it runs in this network."""
        return ["nsenter", f"--net={self._file}", "--"]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Sockets that this thread makes meanwhile, and programs that it starts, are in this network."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter_network(self._file)
            try:
                yield
            finally:
                _enter_network(f"/proc/self/fd/{before}")
        finally:
            os.close(before)

    def inside(self, act: Callable[[], T]) -> T:
        """What ``act`` returns when it is called in this network."""
        with self.entered():
            return act()

    def connect(self, address: str, port: int, timeout_seconds: float = 10.0) -> socket.socket:
        """Raises OSError where nobody listens."""
        return self.inside(lambda: socket.create_connection((address, port), timeout_seconds))

    @property
    def _file(self) -> Path:
        return Path("/run/netns") / self.name


def _enter_network(file: Path | str) -> None:
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(descriptor)
