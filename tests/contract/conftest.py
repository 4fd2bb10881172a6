"""Reports of both runtime modules, each made once a session in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.contract.nvidia_binary import NotFetchedError, NvidiaBinary, cache_folder, fetch, unsupported_reason
from tests.contract.tensorrt_board import on_board as on_board

REPOSITORY = Path(__file__).parents[2]
INSPECTION_TIMEOUT_SECONDS = 300

Report = dict[str, Any]


def inspect(*arguments: str) -> Report:
    done = subprocess.run(
        [sys.executable, "-m", "tests.contract.inspect_module", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=INSPECTION_TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, f"inspection of {arguments[0]} ended with {done.returncode}:\n{done.stderr}"
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="session")
def native_report() -> Report:
    return inspect("native")


@pytest.fixture(scope="session")
def nvidia_binary() -> NvidiaBinary:
    """Skips by name where no published module exists, and off line; in CI a supported Python never skips."""
    reason = unsupported_reason()
    if reason:
        pytest.skip(reason)
    try:
        return fetch(cache_folder())
    except NotFetchedError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def nvidia_report(nvidia_binary: NvidiaBinary) -> Report:
    return inspect("nvidia", str(nvidia_binary.folder))
