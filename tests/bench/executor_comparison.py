"""The fused CPU executor where single speeds say too little: beside a busy neighbour, against memory, with a long
context, and while it loads.

The memory's speed is that of plain reads (memory_reader.py) in the rounds of decoding: one thread in CPU time, two by
the clock, as decoding beside it.
"""

from __future__ import annotations

import mmap
import multiprocessing
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.bench.http_comparison import Finding
from tests.bench.memory_reader import MemoryReaders, read_all, searched_block
from tests.bench.runtime_comparison import CONTEXT_TOKENS_PER_SEQUENCE, ComparedModel, prompt_of
from tests.bench.statistics_of_rounds import Spread, ratio_by_round
from tests.bench.worker_process import WorkerProcess

BUSY_RATIO_TARGET = 8.0
MEMORY_SHARE_TARGET = 0.85
LOAD_TARGET_SECONDS = 0.3
SHORT_PROMPT_TOKENS = 16
LONG_PROMPT_TOKENS = 1900
VERY_LONG_PROMPT_TOKENS = 7900
VERY_LONG_CONTEXT_TOKENS = 8192
VERY_LONG_ROUNDS_MAX = 1  # llama.cpp reads the prompt for minutes
DECODED_TOKENS = 128
# llama.cpp decodes a few tokens a second beside a busy neighbour.
DECODED_TOKENS_BESIDE_A_NEIGHBOUR = 16
DECODED_TOKENS_OF_LONG_CONTEXT = 32
BYTES_PER_GIGABYTE = 1e9


def _spin() -> None:
    while True:
        pass


@contextmanager
def busy_neighbour() -> Iterator[None]:
    process = multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _decode_speed(contender: WorkerProcess, prompt_tokens: int, decoded_tokens: int, clock: str) -> float:
    def cost(token_count: int) -> float:
        answer = contender.ask({"prompts": [prompt_of(prompt_tokens)], "token_count": token_count})
        return float(answer[f"{clock}_seconds"])

    return decoded_tokens / (cost(decoded_tokens + 1) - cost(1))


def _compare_decoding(
    model: ComparedModel,
    threads: int,
    rounds: int,
    prompt_tokens: int,
    decoded_tokens: int,
    clock: str,
    context_tokens: int = CONTEXT_TOKENS_PER_SEQUENCE,
) -> tuple[list[float], list[float]]:
    """Tokens per second of ours and of llama.cpp, who goes first changing from round to round."""
    arguments = (str(threads), "1", str(context_tokens))
    with (
        WorkerProcess("tests.bench.edgellm_worker", str(model.bundle_directory), *arguments) as ours,
        WorkerProcess("tests.bench.llama_cpp_worker", str(model.gguf_file), *arguments) as theirs,
    ):
        speeds: tuple[list[float], list[float]] = ([], [])
        for round_index in range(rounds):
            sides = [(speeds[0], ours), (speeds[1], theirs)]
            for values, contender in sides if round_index % 2 == 0 else reversed(sides):
                values.append(_decode_speed(contender, prompt_tokens, decoded_tokens, clock))
    return speeds


def _ratio_findings(what: str, ours: list[float], theirs: list[float], target: float | None) -> list[Finding]:
    ratio = ratio_by_round(ours, theirs)
    wanted, met = ("", None) if target is None else (f">= {target}", ratio.median >= target)
    return [
        Finding(f"{what}: edgellm", Spread.of(ours), "tok/s", 1, "", None),
        Finding(f"{what}: llama.cpp", Spread.of(theirs), "tok/s", 1, "", None),
        Finding(f"{what}: ratio", ratio, "x", 2, wanted, met),
    ]


def compare_beside_a_neighbour(model: ComparedModel, rounds: int) -> list[Finding]:
    """The ratio, and what each keeps of its speed: the first is as large as llama.cpp's loss makes it."""
    measured = (SHORT_PROMPT_TOKENS, DECODED_TOKENS_BESIDE_A_NEIGHBOUR, "wall")
    ours_alone, theirs_alone = _compare_decoding(model, 2, rounds, *measured)
    with busy_neighbour():
        ours, theirs = _compare_decoding(model, 2, rounds, *measured)
    what = f"{model.name} decode, 2 threads and a busy loop, wall"
    return [
        *_ratio_findings(what, ours, theirs, BUSY_RATIO_TARGET),
        Finding(f"{what}: edgellm keeps", ratio_by_round(ours, ours_alone), "x", 2, "", None),
        Finding(f"{what}: llama.cpp keeps", ratio_by_round(theirs, theirs_alone), "x", 2, "", None),
    ]


def compare_with_a_long_context(model: ComparedModel, rounds: int) -> list[Finding]:
    ours, theirs = _compare_decoding(model, 1, rounds, LONG_PROMPT_TOKENS, DECODED_TOKENS_OF_LONG_CONTEXT, "cpu")
    return _ratio_findings(
        f"{model.name} decode after {LONG_PROMPT_TOKENS:,} tokens, 1 thread, CPU", ours, theirs, None
    )


def compare_with_a_very_long_context(model: ComparedModel, rounds: int) -> list[Finding]:
    ours, theirs = _compare_decoding(
        model,
        1,
        min(rounds, VERY_LONG_ROUNDS_MAX),
        VERY_LONG_PROMPT_TOKENS,
        DECODED_TOKENS_OF_LONG_CONTEXT,
        "cpu",
        VERY_LONG_CONTEXT_TOKENS,
    )
    return _ratio_findings(
        f"{model.name} decode after {VERY_LONG_PROMPT_TOKENS:,} tokens, 1 thread, CPU", ours, theirs, None
    )


def compare_with_short_prompts(model: ComparedModel, rounds: int) -> list[Finding]:
    ours, theirs = _compare_decoding(model, 1, rounds, SHORT_PROMPT_TOKENS, DECODED_TOKENS_OF_LONG_CONTEXT, "cpu")
    return _ratio_findings(f"{model.name} decode, 1 thread, CPU", ours, theirs, None)


def memory_speed(block: mmap.mmap) -> float:
    """Bytes per second of CPU time at which one thread reads ``block``, whose last byte is the only one."""
    start = time.process_time()
    read_all(block)
    return len(block) / (time.process_time() - start)


def _token_bytes(said: Mapping[str, Any]) -> float:
    """What decoding one token reads of weights and context, by the worker's description."""
    return float(said["weight_bytes"] + said["kv_bytes_per_token"] * (SHORT_PROMPT_TOKENS + DECODED_TOKENS / 2))


def compare_with_memory_of_two(model: ComparedModel, rounds: int) -> list[Finding]:
    """How near two threads are to what two plain readers get, which no ratio to llama.cpp can pass."""
    arguments = ("2", "1", str(CONTEXT_TOKENS_PER_SEQUENCE))
    ours_reads, their_reads, roofs = [], [], []
    with (
        WorkerProcess("tests.bench.edgellm_worker", str(model.bundle_directory), *arguments) as ours,
        WorkerProcess("tests.bench.llama_cpp_worker", str(model.gguf_file), *arguments) as theirs,
        MemoryReaders(2) as readers,
    ):
        for _ in range(rounds):
            before = readers.speed()
            ours_speed, their_speed = (
                _decode_speed(one, SHORT_PROMPT_TOKENS, DECODED_TOKENS, "wall") for one in (ours, theirs)
            )
            roofs.append((before + readers.speed()) / 2)
            ours_reads.append(ours_speed * _token_bytes(ours.description))
            # The same weights, though its panels may have other sizes: what ours reads stands for both.
            their_reads.append(their_speed * _token_bytes(ours.description))
    return [
        Finding(
            "plain read of memory, 2 readers, wall",
            Spread.of([roof / BYTES_PER_GIGABYTE for roof in roofs]),
            "GB/s",
            1,
            "",
            None,
        ),
        Finding(
            f"{model.name} decode to plain read, 2 threads, wall", ratio_by_round(ours_reads, roofs), "x", 2, "", None
        ),
        Finding(
            f"plain read to llama.cpp's {model.name} decode, 2 threads, wall",
            ratio_by_round(roofs, their_reads),
            "x",
            2,
            "",
            None,
        ),
    ]


def compare_with_memory(model: ComparedModel, rounds: int) -> list[Finding]:
    """Weights and context that decoding a token reads, a second, beside the speed of a plain read."""
    block = searched_block()
    reads, roofs, loads = [], [], []
    worker = (str(model.bundle_directory), "1", "1", str(CONTEXT_TOKENS_PER_SEQUENCE))
    with WorkerProcess("tests.bench.edgellm_worker", *worker):
        pass  # the first load of a bundle derives the weight panels
    for _ in range(rounds):
        with WorkerProcess("tests.bench.edgellm_worker", *worker) as ours:
            said = ours.description
            loads.append(float(said["load_seconds"]))
            before = memory_speed(block)
            speed = _decode_speed(ours, SHORT_PROMPT_TOKENS, DECODED_TOKENS, "cpu")
            roofs.append((before + memory_speed(block)) / 2)
            reads.append(speed * _token_bytes(said))
    share, load = ratio_by_round(reads, roofs), Spread.of(loads)
    return [
        Finding(
            f"{model.name} decode, bytes read, 1 thread, CPU",
            Spread.of([read / BYTES_PER_GIGABYTE for read in reads]),
            "GB/s",
            1,
            "",
            None,
        ),
        Finding(
            "plain read of memory, 1 thread, CPU",
            Spread.of([roof / BYTES_PER_GIGABYTE for roof in roofs]),
            "GB/s",
            1,
            "",
            None,
        ),
        Finding(
            f"{model.name} decode to plain read",
            share,
            "x",
            2,
            f">= {MEMORY_SHARE_TARGET}",
            share.median >= MEMORY_SHARE_TARGET,
        ),
        Finding(
            f"{model.name} load of a cached bundle",
            load,
            "s",
            3,
            f"<= {LOAD_TARGET_SECONDS}",
            load.median <= LOAD_TARGET_SECONDS,
        ),
    ]
