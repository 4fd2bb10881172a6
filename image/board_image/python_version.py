"""Tells whoever has an older Python so, before anything that an older one cannot read is imported."""

from __future__ import annotations

import sys

NEEDED = (3, 11)
EXIT_UNAVAILABLE = 69


def require_python(program: str) -> None:
    """Return where this Python is new enough; end the program otherwise."""
    if sys.version_info[:2] < NEEDED:
        needed = ".".join(map(str, NEEDED))
        found = ".".join(map(str, sys.version_info[:2]))
        sys.stderr.write(
            f"{program}: Python {needed} or newer is needed, and this is {found} — on Ubuntu 22.04: sudo apt install "
            f"python{needed}, then python{needed} {program} …\n"
        )
        sys.exit(EXIT_UNAVAILABLE)
