"""A machine that cannot have devices or containers skips their tests and says why; the gate never skips them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
NEEDED = {
    "tests/lab/test_device.py": "needs debootstrap and systemd-container",
    "tests/lab/test_podman.py": "needs podman and runc",
}


@pytest.mark.parametrize("gate", [False, True], ids=["make test-system", "the gate"])
@pytest.mark.parametrize("file", NEEDED)
def test_what_is_missing_is_named(tmp_path: Path, file: str, gate: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "EDGELLM_CI"}
    completed = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "system", "-p", "no:cacheprovider", file],
        cwd=CHECKOUT,
        env={**environment, "PATH": str(tmp_path), **({"EDGELLM_CI": "1"} if gate else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert NEEDED[file] in completed.stdout
    assert "passed" not in completed.stdout.splitlines()[-1]
    assert (completed.returncode == 0) == (not gate), completed.stdout
