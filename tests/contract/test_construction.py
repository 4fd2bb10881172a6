"""Every way to construct NVIDIA's runtime takes the adapter's arguments: what stops it is the missing GPU alone."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.contract.conftest import INSPECTION_TIMEOUT_SECONDS, REPOSITORY
from tests.contract.nvidia_binary import NvidiaBinary


def test_only_the_missing_gpu_stops_the_construction(nvidia_binary: NvidiaBinary) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.contract.construct_runtime", "nvidia", str(nvidia_binary.folder)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=INSPECTION_TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    stops = json.loads(done.stdout)
    assert set(stops) == {"blocking", "speculative", "in flight"}
    for name, (kind, text) in stops.items():
        assert kind == "RuntimeError", (name, kind, text)
        assert "CUDA" in text, (name, text)
