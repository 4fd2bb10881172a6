"""The side of a benchmark worker that runs in its own process: one JSON request a line, one JSON answer a line.

A contender implements ``generate``. Its library may write to standard output: answers go to a private copy of it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Protocol


class Contender(Protocol):
    def generate(self, prompts: Sequence[Sequence[int]], token_count: int) -> int:
        """Generate exactly token_count greedy tokens for every prompt, all at once; returns the tokens generated."""
        ...

    def description(self) -> dict[str, Any]: ...


def serve_requests(contender: Contender) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    answer(contender.description())
    for line in sys.stdin:
        request = json.loads(line)
        cpu_start, wall_start = time.process_time(), time.perf_counter()
        generated = contender.generate(request["prompts"], request["token_count"])
        wall, cpu = time.perf_counter() - wall_start, time.process_time() - cpu_start
        expected = len(request["prompts"]) * request["token_count"]
        if generated != expected:
            raise RuntimeError(f"generated {generated} tokens, expected {expected}")
        answer({"wall_seconds": wall, "cpu_seconds": cpu})
