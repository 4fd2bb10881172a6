"""llama.cpp's own HTTP server in a process of its own: its port as the first line, then until its input ends."""

from __future__ import annotations

import json
import os
import sys
from urllib.parse import urlsplit

import xllamacpp


def main(model_path: str, threads: int, sequences: int, context_tokens: int) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    params = xllamacpp.CommonParams()
    params.model.path = model_path
    params.n_ctx = context_tokens * sequences
    params.n_parallel = sequences
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.port = 0
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.fit_params = False
    params.verbosity = 0
    server = xllamacpp.Server(params)
    address = urlsplit(server.listening_address)
    answers.write(json.dumps({"name": "llama.cpp", "host": address.hostname, "port": address.port}) + "\n")
    answers.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
