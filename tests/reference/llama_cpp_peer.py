"""llama.cpp as a peer for correctness: a process of its own (two builds of one tensor library never share one),
asked over its loopback socket.

As a program, ``python -m tests.reference.llama_cpp_peer MODEL OPTIONS`` loads the model, prints its address and serves
until standard input closes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
REQUEST_DEADLINE_SECONDS = 600


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """``exact_attention`` computes attention in float32 over a float32 KV cache; else llama.cpp's defaults hold."""

    context_tokens: int = 2048
    threads: int = 1
    exact_attention: bool = False


class LlamaCppPeer:
    def __init__(self, model: Path, options: PeerOptions | None = None) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(model), json.dumps(asdict(options or PeerOptions()))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
        )
        assert self._process.stdout is not None
        self._address = self._process.stdout.readline().strip()
        if not self._address:
            self._errors.seek(0)
            raise RuntimeError(f"llama.cpp did not load {model}:\n{self._errors.read()[-4000:]}")

    def _ask(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - loopback
            self._address + route, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=REQUEST_DEADLINE_SECONDS) as response:  # noqa: S310
            answer: dict[str, Any] = json.load(response)
            return answer

    def tokenize(self, text: str, *, add_special: bool = False) -> list[int]:
        """Token ids of text; the literal text of special tokens becomes those tokens."""
        ids = self._ask("/tokenize", {"content": text, "add_special": add_special, "parse_special": True})["tokens"]
        return [int(token) for token in ids]

    def greedy(self, prompt_ids: Sequence[int], token_count: int, forbidden: Sequence[int]) -> list[int]:
        """The greedy continuation that never takes a forbidden token. Name the end tokens: llama.cpp stops at them."""
        body = {"prompt": list(prompt_ids), "n_predict": token_count, "temperature": 0, "cache_prompt": False}
        forbid = [[token, False] for token in forbidden]
        answer = self._ask("/completion", {**body, "logit_bias": forbid, "return_tokens": True})
        return [int(token) for token in answer["tokens"]]

    def next_logprobs(self, ids: Sequence[int], vocab_size: int, plain_token: int) -> NDArray[np.float64]:
        """Log-probabilities of every token after ``ids``; those llama.cpp leaves out are -inf.

        ``plain_token`` is a token of one ASCII character: it is forced as the sampled one, because llama.cpp
        withholds probabilities of a token that is no whole text. The probabilities are those before sampling.
        """
        body = {
            "prompt": list(ids),
            "n_predict": 1,
            "n_probs": vocab_size,
            "cache_prompt": True,
            "post_sampling_probs": False,
            "logit_bias": [[plain_token, 1000.0]],
        }
        top = self._ask("/completion", body)["completion_probabilities"][0]["top_logprobs"]
        logprobs = np.full(vocab_size, -np.inf)
        logprobs[[entry["id"] for entry in top]] = [entry["logprob"] for entry in top]
        return logprobs

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(model: str, options: PeerOptions) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = options.context_tokens
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.cache_ram_mib = 0
    params.fit_params = False
    params.warmup = False
    params.verbosity = 0
    if options.exact_attention:
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F32
        params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(sys.argv[1], PeerOptions(**json.loads(sys.argv[2])))
