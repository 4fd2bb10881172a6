"""``python -m tests.bench``: measures by section, prints tables, and with ``--write`` puts them into README.md."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.executor_comparison import (
    compare_beside_a_neighbour,
    compare_with_a_long_context,
    compare_with_a_very_long_context,
    compare_with_memory,
    compare_with_memory_of_two,
    compare_with_short_prompts,
)
from tests.bench.front_end_comparison import compare_front_ends
from tests.bench.front_end_memory import front_end_memory
from tests.bench.http_comparison import Finding, compare_second_turn, compare_with_direct
from tests.bench.image_latency import measure_images as measure_image_latency
from tests.bench.lane_comparison import compare_lanes, compare_recovery, compare_replicas
from tests.bench.larger_shape import write_half_billion_shape
from tests.bench.machine import CpuTicks, describe_machine
from tests.bench.request_costs import request_costs
from tests.bench.results_table import README, findings_table, runtime_table, write_results
from tests.bench.runtime_comparison import ComparedModel, ComparisonRow, compare
from tests.bench.server_comparison import CONTEXT_TOKENS, SEQUENCES, compare_servers
from tests.bench.speech_measures import measure_mixed_clients, measure_speech_alone, speech_daemon
from tests.bench.store_comparison import compare_digest_with_hashing, compare_hit_with_load, compare_lowering_with_copy
from tests.bench.worker_process import WorkerProcess
from tests.http.daemon_process import Daemon
from tests.models.bundles import stored_bundle
from tests.models.real_model import smollm2_file
from tests.models.requantise import write_requantised_copy

from edgellm.engines.bundle import Bundle
from edgellm.engines.source import resolve

SECTIONS = ("runtime", "executor", "http", "servers", "lanes", "front_end", "memory", "store", "speech", "images")
DEFAULT_ROUNDS = 7


def say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


def bundle_of(gguf_file: Path, cache: Path) -> Bundle:
    return stored_bundle(resolve(str(gguf_file), cache / "models", download=False), cache)


def compared_models(folder: Path) -> list[ComparedModel]:
    """The default model as shipped, in Q4_1, and a copy of it in Q8_0."""
    q4_1 = smollm2_file()
    q8_0 = folder / "SmolLM2-135M-Instruct.Q8_0.gguf"
    if not q8_0.exists():
        say("making the Q8_0 copy")
        write_requantised_copy(q4_1, q8_0, "Q8_0")
    return [
        ComparedModel(name, gguf_file, bundle_of(gguf_file, folder / "cache").directory)
        for name, gguf_file in (("Q4_1", q4_1), ("Q8_0", q8_0))
    ]


def measure_runtime(folder: Path, rounds: int) -> Iterator[ComparisonRow]:
    for model in compared_models(folder):
        for threads in (1, 2):
            if threads > len(os.sched_getaffinity(0)):
                say(f"{model.name}: {threads} threads are more than the cores here; left out")
                continue
            say(f"{model.name}, {threads} threads: {rounds} rounds")
            yield from compare(model, threads, rounds)


def measure_executor(folder: Path, rounds: int) -> list[Finding]:
    findings: list[Finding] = []
    for model in compared_models(folder):
        say(f"{model.name} against the memory's speed: {rounds} rounds")
        findings += compare_with_memory(model, rounds)
        if len(os.sched_getaffinity(0)) > 1:
            findings += compare_with_memory_of_two(model, rounds)
        say(f"{model.name} with a long context: {rounds} rounds")
        findings += compare_with_a_long_context(model, rounds)
        say(f"{model.name} beside a busy neighbour: {rounds} rounds")
        findings += compare_beside_a_neighbour(model, rounds)
    smallest = compared_models(folder)[0]
    say(f"{smallest.name} with a very long context")
    findings += compare_with_a_very_long_context(smallest, rounds)
    say(f"a model of 0.5 billion weights: {rounds} rounds")
    gguf_file = write_half_billion_shape(folder / "half-billion.Q4_1.gguf", "Q4_1")
    bundle = bundle_of(gguf_file, folder / "cache").directory
    return findings + compare_with_short_prompts(ComparedModel("Q4_1 of 0.5 billion", gguf_file, bundle), rounds)


@contextmanager
def daemon_over(source: Path, cache: Path, *options: str) -> Iterator[Daemon]:
    daemon = Daemon(source, "--cache-dir", str(cache), *options)
    try:
        yield daemon.wait_until_ready()
    finally:
        daemon.stop()


def measure_http(folder: Path, rounds: int) -> list[Finding]:
    source, cache = smollm2_file(), folder / "cache"
    end_tokens = bundle_of(source, cache).end_token_ids
    options = f'{{"cache_dir": "{cache}"}}'
    with daemon_over(source, cache) as daemon:
        say(f"HTTP against the Python API: {rounds} rounds")
        with WorkerProcess("tests.bench.direct_stream_worker", str(source), options) as direct:
            findings = compare_with_direct(daemon, direct, end_tokens, rounds)
        say(f"second turn against cold: {rounds} rounds")
        return findings + compare_second_turn(daemon, end_tokens, rounds)


def measure_servers(folder: Path, rounds: int) -> list[Finding]:
    source, cache = smollm2_file(), folder / "cache"
    end_tokens = bundle_of(source, cache).end_token_ids
    threads = str(min(2, len(os.sched_getaffinity(0))))
    ours = ("--threads", threads, "--max-batch-size", str(SEQUENCES), "--max-kv-cache-capacity", str(CONTEXT_TOKENS))
    theirs = (str(source), threads, str(SEQUENCES), str(CONTEXT_TOKENS))
    with (
        daemon_over(source, cache, *ours, "--no-enable-context-reuse") as daemon,
        WorkerProcess("tests.bench.llama_cpp_server", *theirs) as llama_cpp,
    ):
        say(f"HTTP against llama.cpp's server: {rounds} rounds of each load")
        server = llama_cpp.description
        return compare_servers(daemon.address, (server["host"], server["port"]), end_tokens, rounds)


def measure_lanes(folder: Path, rounds: int) -> list[Finding]:
    source, cache = smollm2_file(), folder / "cache"
    end_tokens = bundle_of(source, cache).end_token_ids
    say(f"worker lane against in-process lane: {rounds} rounds")
    findings = compare_lanes(source, cache, rounds)
    say(f"recovery against a cached load: {rounds} rounds")
    findings += compare_recovery(source, cache, rounds)
    say(f"two replicas against one: {rounds} rounds")
    with daemon_over(source, cache) as one, daemon_over(source, cache, "--replicas", "2") as two:
        return findings + compare_replicas(one, two, end_tokens, rounds)


def measure_front_end(folder: Path, rounds: int) -> list[Finding]:
    say(f"front end against a bare Starlette loop: {rounds} rounds")
    findings = compare_front_ends(folder, rounds)
    say(f"requests before they run: {rounds} rounds")
    return findings + request_costs(bundle_of(smollm2_file(), folder / "cache"), rounds)


def measure_memory(folder: Path, rounds: int) -> list[Finding]:
    say("memory of the front end")
    return front_end_memory(folder)


def measure_store(folder: Path, rounds: int) -> list[Finding]:
    say(f"hit path against load: {rounds} rounds")
    findings = compare_hit_with_load(folder, rounds)
    say(f"digest of 4 GiB against hashing: {rounds} rounds")
    findings += compare_digest_with_hashing(folder, rounds)
    say(f"lowering against file copy: {rounds} rounds")
    return findings + compare_lowering_with_copy(folder, rounds)


def measure_speech(folder: Path, rounds: int) -> list[Finding]:
    with speech_daemon(folder) as daemon:
        say(f"speech and transcription: {rounds} rounds")
        findings = measure_speech_alone(daemon, rounds)
        say(f"clients of every kind at once: {rounds} rounds")
        return findings + measure_mixed_clients(daemon, rounds)


def measure_images(folder: Path, rounds: int) -> list[Finding]:
    say(f"images: {rounds} rounds")
    return measure_image_latency(folder, rounds)


MEASURED = {
    "executor": measure_executor,
    "http": measure_http,
    "servers": measure_servers,
    "lanes": measure_lanes,
    "front_end": measure_front_end,
    "memory": measure_memory,
    "store": measure_store,
    "speech": measure_speech,
    "images": measure_images,
}


def measured(section: str, folder: Path, rounds: int) -> str:
    """The section's table below a line that says when, where and how quietly it was measured."""
    start, start_ticks = time.monotonic(), CpuTicks.now()
    load_before = os.getloadavg()[0]
    if section == "runtime":
        table = runtime_table(list(measure_runtime(folder, rounds)))
    else:
        table = findings_table(MEASURED[section](folder, rounds))
    stolen = CpuTicks.now().stolen_percent_since(start_ticks)
    return (
        f"{time.strftime('%Y-%m-%d')}, {rounds} rounds, {time.monotonic() - start:.0f} s. {describe_machine()}. "
        f"Load before the run {load_before:.2f}; CPU time stolen by the host's other guests {stolen:.1f} %.\n\n{table}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help="rounds of every comparison")
    parser.add_argument("--section", choices=SECTIONS, action="append", help="only this part; repeatable")
    parser.add_argument("--write", action="store_true", help=f"put the results into {README.name}")
    arguments = parser.parse_args()
    texts: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="edgellm-bench-") as name:
        for section in arguments.section or SECTIONS:
            texts[section] = measured(section, Path(name), arguments.rounds)
            sys.stdout.write(f"{texts[section]}\n\n")
            sys.stdout.flush()
    if arguments.write:
        write_results(texts)
        say(f"written to {README}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
