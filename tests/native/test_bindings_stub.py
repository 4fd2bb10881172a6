"""The committed stub says what the built module has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PROCESS_TIMEOUT_SECONDS = 120


def test_the_stub_fits_the_module() -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "native" / "stubs" / "generate.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PROCESS_TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, f"run native/stubs/generate.py again:\n{done.stdout}{done.stderr}"
