"""The environment of a checkout that was set up: for what Python's standard library cannot do."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from edgellm.host.commands import attempt

DAEMON = Path(__file__).resolve().parents[2]
CHECKOUT = DAEMON.parent
ENVIRONMENT = CHECKOUT / ".venv/bin/python"  # of make


def python_with(module: str) -> str | None:
    """The first Python here that can import it: this one, or that of make setup."""
    candidates = [sys.executable, *([str(ENVIRONMENT)] if os.path.isfile(ENVIRONMENT) else [])]
    for one in candidates:
        if attempt([one, "-c", f"import {module}"], environment=environment()).code == 0:
            return one
    return None


def environment() -> Mapping[str, str]:
    """Settings of this machine are not those of a board."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDGELLM_")}
    return {**kept, "PYTHONPATH": str(DAEMON)}
