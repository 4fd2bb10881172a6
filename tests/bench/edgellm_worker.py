"""Our runtime driven in-process through RequestEngine, with its context cache off and everything else as it comes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from tests.bench.worker_loop import serve_requests

from edgellm.runtime.native_module import load_native_module


class EdgeLLMContender:
    def __init__(self, bundle_directory: str, threads: int, sequences: int, context_tokens: int) -> None:
        self._module: Any = load_native_module(os.environ)
        options = self._module.RuntimeOptions()
        options.threads = threads
        options.max_kv_tokens = context_tokens
        start = time.perf_counter()
        self._engine = self._module.RequestEngine(bundle_directory, max_batch_size=sequences, options=options)
        self._load_seconds = time.perf_counter() - start

    def _request(self, prompt: Sequence[int], token_count: int) -> Any:
        request = self._module.LLMGenerationRequest()
        request.temperature, request.top_p, request.top_k = 0.0, 1.0, 1
        request.max_generate_length = token_count
        item = self._module.Request()
        item.extensions.token_ids = list(prompt)
        item.extensions.ignore_eos = True
        request.requests = [item]
        request.stream_channels = [self._module.StreamChannel.create()]
        return request

    def generate(self, prompts: Sequence[Sequence[int]], token_count: int) -> int:
        handles = [self._engine.submit(self._request(prompt, token_count)) for prompt in prompts]
        return sum(len(handle.get().output_ids[0]) for handle in handles)

    def description(self) -> dict[str, Any]:
        info = self._engine.executor_info()
        return {
            "name": "edgellm",
            "executor": info.name,
            "device": info.device,
            "threads": info.threads,
            "load_seconds": self._load_seconds,
            "weight_bytes": info.weight_bytes,
            "kv_bytes_per_token": info.kv_bytes_per_token,
        }


if __name__ == "__main__":
    serve_requests(EdgeLLMContender(sys.argv[1], *map(int, sys.argv[2:])))
