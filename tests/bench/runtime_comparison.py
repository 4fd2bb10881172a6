"""Decode, four sequences and prompt of our runtime and of llama.cpp over one GGUF file, taken in turns.

Each library runs in its own process and is called without HTTP, with prompts as token ids, its prompt cache off.
A speed is taken from differences of whole calls, by the same calls on both sides: decoding is the time of a call
for many tokens minus the time of the same call for one token, so neither prompt nor call overhead is in it; the
prompt's speed is its length over the time of a call for one token. With one thread the cost is CPU time (what other
tenants of the machine take does not count), with two it is wall time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.statistics_of_rounds import Spread, ratio_by_round
from tests.bench.worker_process import WorkerProcess

SHORT_PROMPT_TOKENS = 16
LONG_PROMPT_TOKENS = 256
DECODED_TOKENS = 128
PARALLEL_SEQUENCES = 4
PARALLEL_DECODED_TOKENS = 64
WARM_UP_TOKENS = 8
CONTEXT_TOKENS_PER_SEQUENCE = 2048

# By model and number of threads.
TARGET_RATIOS = {
    ("Q4_1", 1): {"decode": 1.9, "4 sequences": 3.4, "prompt 256": 4.8},
    ("Q4_1", 2): {"decode": 2.2, "4 sequences": 3.4, "prompt 256": 4.8},
    ("Q8_0", 1): {"decode": 1.7, "4 sequences": 2.5, "prompt 256": 1.8},
    ("Q8_0", 2): {"decode": 2.0, "4 sequences": 2.5, "prompt 256": 1.8},
}


def prompt_of(length: int, variety: int = 0) -> list[int]:
    """Ordinary token ids without a pattern that a kernel could profit from."""
    return [(index * 7919 + variety * 104729) % 40000 + 100 for index in range(length)]


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """``bundle_directory`` is the engine bundle that our lowering makes of ``gguf_file``."""

    name: str
    gguf_file: Path
    bundle_directory: Path


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """Tokens per second on both sides; ``clock`` is wall or CPU."""

    model: str
    threads: int
    clock: str
    measure: str
    ours: Spread
    theirs: Spread
    ratio: Spread
    target: float


def _speeds(contender: WorkerProcess, clock: str) -> Iterator[tuple[str, float]]:
    def cost(prompts: Sequence[Sequence[int]], token_count: int) -> float:
        spent = contender.ask({"prompts": prompts, "token_count": token_count})
        return float(spent["cpu_seconds" if clock == "CPU" else "wall_seconds"])

    one = [prompt_of(SHORT_PROMPT_TOKENS)]
    four = [prompt_of(SHORT_PROMPT_TOKENS, variety) for variety in range(1, PARALLEL_SEQUENCES + 1)]
    yield "decode", DECODED_TOKENS / (cost(one, DECODED_TOKENS + 1) - cost(one, 1))
    more = PARALLEL_SEQUENCES * PARALLEL_DECODED_TOKENS
    yield "4 sequences", more / (cost(four, PARALLEL_DECODED_TOKENS + 1) - cost(four, 1))
    yield "prompt 256", LONG_PROMPT_TOKENS / cost([prompt_of(LONG_PROMPT_TOKENS, 9)], 1)


def compare(model: ComparedModel, threads: int, rounds: int) -> Iterator[ComparisonRow]:
    clock = "CPU" if threads == 1 else "wall"
    arguments = (str(threads), str(PARALLEL_SEQUENCES), str(CONTEXT_TOKENS_PER_SEQUENCE))
    with (
        WorkerProcess("tests.bench.edgellm_worker", str(model.bundle_directory), *arguments) as ours,
        WorkerProcess("tests.bench.llama_cpp_worker", str(model.gguf_file), *arguments) as theirs,
    ):
        contenders = (ours, theirs)
        for contender in contenders:
            warm_up = [prompt_of(SHORT_PROMPT_TOKENS)] * PARALLEL_SEQUENCES
            contender.ask({"prompts": warm_up, "token_count": WARM_UP_TOKENS})
        speeds: dict[tuple[int, str], list[float]] = {}
        for round_index in range(rounds):
            # Whoever goes first changes from round to round, so that a drift of the clock favours neither.
            order = (0, 1) if round_index % 2 == 0 else (1, 0)
            for side in order:
                for measure, speed in _speeds(contenders[side], clock):
                    speeds.setdefault((side, measure), []).append(speed)
    for measure, target in TARGET_RATIOS[model.name, threads].items():
        mine, other = speeds[0, measure], speeds[1, measure]
        yield ComparisonRow(
            model.name, threads, clock, measure, Spread.of(mine), Spread.of(other), ratio_by_round(mine, other), target
        )
