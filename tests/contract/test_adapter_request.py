"""One adapter for both modules: a request with everything in it arrives whole, and alike, in either."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.contract.adapter_request import PARAMS
from tests.contract.conftest import INSPECTION_TIMEOUT_SECONDS, REPOSITORY
from tests.contract.nvidia_binary import NvidiaBinary


def held_by(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.contract.adapter_request", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=INSPECTION_TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_native_holds_the_whole_request() -> None:
    held = held_by("native")
    assert held["sampling"] == [0.5, 0.75, 7, 9, 3]
    assert held["policies"] == ["BYPASS", "PREFILL_STATE_ONLY"]
    assert held["item"] == [["ü", "\n\n"], [[4, -1.0], [2**31 - 1, 100.0]], PARAMS.seed]
    assert held["guide"] == ["JSON_SCHEMA", '{"type":"object"}']
    assert [sorted(message) for message in held["messages"]] == [
        ["content", "role"],
        ["content", "name", "role"],
        ["content", "reasoning_content", "role", "tool_calls"],
        ["role", "tool_calls"],
        ["content", "role", "tool_call_id"],
    ]
    assert held["channels"] == [1, False]


def test_nvidia_holds_the_same(nvidia_binary: NvidiaBinary) -> None:
    held = held_by("nvidia", str(nvidia_binary.folder))
    assert held == held_by("native")
    assert held["replay tail"] == 0  # a replay tail needs a generation prompt
