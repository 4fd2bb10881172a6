"""What a test may do on this machine: root of a plain container may not mount, which devices and images take."""

from __future__ import annotations

import os
from pathlib import Path

SYS_ADMIN_BIT = 21  # CAP_SYS_ADMIN of capabilities(7)


def missing_privileges(status: Path = Path("/proc/self/status")) -> str:
    """Why this process cannot mount, or ""."""
    if os.geteuid() != 0:
        return "needs root"
    (held,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("CapEff:"))
    may_mount = int(held, 16) >> SYS_ADMIN_BIT & 1
    return "" if may_mount else "needs CAP_SYS_ADMIN, as root of a machine or of a privileged container has it"
