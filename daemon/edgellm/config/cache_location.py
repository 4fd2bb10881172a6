"""Where edgellm keeps what it can make again, unless it is told otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

CACHE_VARIABLE = "EDGELLM_CACHE_DIR"
BAKED_ENGINES_DIR = "/usr/share/edgellm/engines"
"""Where an image keeps the engines that it was built with."""


def default_cache_dir(environ: Mapping[str, str]) -> Path:
    """``EDGELLM_CACHE_DIR``, else ``edgellm`` below ``XDG_CACHE_HOME``, else below ``~/.cache``. Touches no disk."""
    chosen = environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say that a relative path is to be ignored.
    root = Path(base) if base.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".cache"
    return root / "edgellm"
