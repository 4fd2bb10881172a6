"""llama.cpp driven in-process through xllamacpp, with its prompt cache off and everything else as it comes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import xllamacpp
from tests.bench.worker_loop import serve_requests


class LlamaCppContender:
    def __init__(self, model_path: str, threads: int, sequences: int, context_tokens: int) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = model_path
        params.n_ctx = context_tokens * sequences
        params.n_parallel = sequences
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
        params.cache_prompt = False
        params.cache_ram_mib = 0
        params.fit_params = False
        params.verbosity = 0
        self._server = xllamacpp.Server(params)
        self._callers = ThreadPoolExecutor(max_workers=sequences)

    def _complete(self, prompt: Sequence[int], token_count: int) -> int:
        response = self._server.handle_completions(
            {
                "prompt": list(prompt),
                "max_tokens": token_count,
                "temperature": 0,
                "ignore_eos": True,
                "cache_prompt": False,
            }
        )
        if response["usage"]["prompt_tokens_details"]["cached_tokens"] != 0:
            raise RuntimeError("llama.cpp took prompt tokens from its cache; the comparison would be wrong")
        return int(response["usage"]["completion_tokens"])

    def generate(self, prompts: Sequence[Sequence[int]], token_count: int) -> int:
        if len(prompts) == 1:
            return self._complete(prompts[0], token_count)
        return sum(self._callers.map(lambda prompt: self._complete(prompt, token_count), prompts))

    def description(self) -> dict[str, Any]:
        return {"name": "llama.cpp", "system_info": xllamacpp.get_system_info().strip(" |")}


if __name__ == "__main__":
    serve_requests(LlamaCppContender(sys.argv[1], *map(int, sys.argv[2:])))
