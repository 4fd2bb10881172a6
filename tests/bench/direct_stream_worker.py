"""One chat stream after the other through the Python API in a process of its own: what HTTP is compared with."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from edgellm import LLM, SamplingParams


def stream(llm: LLM, request: dict[str, Any]) -> dict[str, Any]:
    params = SamplingParams(
        temperature=0.0,
        max_tokens=request["max_tokens"],
        logit_bias=request["logit_bias"],
        reuse_context=request["reuse_context"],
    )
    start = time.perf_counter()
    first_delta_seconds = 0.0
    token_count = 0
    for delta in llm.generate_stream(request["messages"], params):
        token_count += len(delta.token_ids)
        if delta.text and not first_delta_seconds:
            first_delta_seconds = time.perf_counter() - start
    return {
        "first_delta_seconds": first_delta_seconds,
        "seconds": time.perf_counter() - start,
        "token_count": token_count,
    }


def main(model: str, options: dict[str, Any]) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with LLM(model, **options) as llm:
        answers.write(json.dumps({"name": "edgellm"}) + "\n")
        answers.flush()
        for line in sys.stdin:
            answers.write(json.dumps(stream(llm, json.loads(line))) + "\n")
            answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
