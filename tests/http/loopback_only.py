"""LoopbackOnly: a network namespace whose only address is its own loopback, for programs that would call home."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

_HOLD = """
import fcntl, socket, struct, sys
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 1, 64
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP | IFF_RUNNING))
print("up", flush=True)
sys.stdin.read()
"""


class LoopbackOnly:
    """Lives until ``close``; needs root. A process in it reaches other processes in it and nothing else."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", sys.executable, "-c", _HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "up\n"

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command that runs ``command`` in the namespace."""
        return ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", *command]

    def close(self) -> None:
        self._holder.communicate("")


def why_not() -> str | None:
    """The reason why there can be no namespace here; None when there can."""
    if os.geteuid() != 0:
        return "a network namespace needs root"
    missing = [tool for tool in ("unshare", "nsenter") if shutil.which(tool) is None]
    return f"{', '.join(missing)} of util-linux is missing" if missing else None
