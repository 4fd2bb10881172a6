"""Keys of ssh-keygen, made for the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def signing_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("signing") / "key")


@pytest.fixture(scope="session")
def other_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("other") / "key")


def make_key(path: Path) -> Path:
    """The public one is beside it, as .pub. Skips where there is no ssh-keygen; the gate has it."""
    if shutil.which("ssh-keygen") is None and os.environ.get("EDGELLM_CI") != "1":
        pytest.skip("needs ssh-keygen (openssh-client)")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tests", "-f", str(path)], check=True)
    return path
