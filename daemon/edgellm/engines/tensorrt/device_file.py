"""The device file: what a host unit writes about its board, since containers cannot see it for themselves.

``/run/edgellm/device.json`` is an object such as ``{"module": "Orin NX 16GB", "l4t": "R39.2.1", "sm": 87}``; other keys
are for others. Where it exists the machine is declared a Jetson, even when nobody can read what it says.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from edgellm.config.regular_file import open_regular

DEVICE_FILE = Path("/run/edgellm/device.json")
MAX_DEVICE_BYTES = 1 << 16
_L4T = re.compile(r"R(\d+)\.(\d+)(?:\.\d+)*")


@dataclass(frozen=True, slots=True)
class DeclaredDevice:
    """``module`` is "" and the others None where the file does not say. ``l4t`` is major and minor, ``R39.2``."""

    path: Path
    module: str = ""
    l4t: str | None = None
    sm: int | None = None

    def __str__(self) -> str:
        return f"a Jetson ({self.module})" if self.module else "a Jetson"


def read_device_file(path: Path = DEVICE_FILE) -> DeclaredDevice | None:
    """Give what the file declares, None when there is none."""
    try:
        with open_regular(path) as stream:
            declared = json.loads(stream.read(MAX_DEVICE_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        return DeclaredDevice(path)
    if not isinstance(declared, dict):
        return DeclaredDevice(path)
    module, l4t, sm = declared.get("module"), declared.get("l4t"), declared.get("sm")
    release = _L4T.fullmatch(l4t) if isinstance(l4t, str) else None
    return DeclaredDevice(
        path,
        module=module if isinstance(module, str) and module.isprintable() else "",
        l4t=f"R{int(release[1])}.{int(release[2])}" if release else None,
        sm=sm if isinstance(sm, int) and not isinstance(sm, bool) and sm > 0 else None,
    )
