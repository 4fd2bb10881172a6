"""A worker's lane against the in-process one, recovery of a killed worker against a load, two replicas against one."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.bench.http_comparison import Finding, chat_request, stream_over_http
from tests.bench.lane_process import IN_PROCESS, WORKER
from tests.bench.statistics_of_rounds import Spread, ratio_by_round
from tests.bench.worker_process import WorkerProcess
from tests.http.daemon_process import Daemon

STREAM_TOKENS = 128
RECOVERY_TOKENS = 8
REPLICA_CLIENTS = (2, 8)
REPLICA_TOKENS = 64
MILLISECONDS_PER_SECOND = 1e3
MICROSECONDS_PER_SECOND = 1e6
SPEED_RATIO_MIN = 0.98
FIRST_TOKEN_LATER_MS_MAX = 1.5
RECOVERY_RATIO_MAX = 1.5


def compare_lanes(source: Path, cache: Path, rounds: int) -> list[Finding]:
    """One stream at a time, in turns; who goes first changes from round to round."""
    arguments = (str(source), str(cache))
    runs: dict[str, list[dict[str, Any]]] = {WORKER: [], IN_PROCESS: []}
    with (
        WorkerProcess("tests.bench.lane_process", WORKER, *arguments) as worker,
        WorkerProcess("tests.bench.lane_process", IN_PROCESS, *arguments) as in_process,
    ):
        sides = [(WORKER, worker), (IN_PROCESS, in_process)]
        for index in range(-1, rounds):
            for name, process in sides[:: 1 if index % 2 else -1]:
                order = {"content": f"Count from {index} upwards.", "max_tokens": STREAM_TOKENS}
                run = process.ask(order)
                if run["tokens"] != STREAM_TOKENS:
                    raise RuntimeError(f"a stream of {run['tokens']} tokens, expected {STREAM_TOKENS}: not comparable")
                if index >= 0:
                    runs[name].append(run)

    def spread(lane: str, field: str, factor: float) -> Spread:
        return Spread.of([factor * run[field] for run in runs[lane]])

    speeds = {lane: [run["tokens"] / run["seconds"] for run in runs[lane]] for lane in runs}
    ratio = ratio_by_round(speeds[WORKER], speeds[IN_PROCESS])
    later = Spread.of(
        [
            MILLISECONDS_PER_SECOND * (ours["first_token_seconds"] - theirs["first_token_seconds"])
            for ours, theirs in zip(runs[WORKER], runs[IN_PROCESS], strict=True)
        ]
    )
    per_token = MICROSECONDS_PER_SECOND / STREAM_TOKENS
    return [
        Finding("in-process lane", Spread.of(speeds[IN_PROCESS]), "tok/s", 1, "", None),
        Finding("worker lane", Spread.of(speeds[WORKER]), "tok/s", 1, "", None),
        Finding("worker lane to in-process", ratio, "x", 3, f">= {SPEED_RATIO_MIN}", ratio.median >= SPEED_RATIO_MIN),
        Finding(
            "first token, worker later than in-process",
            later,
            "ms",
            2,
            f"<= {FIRST_TOKEN_LATER_MS_MAX}",
            later.median <= FIRST_TOKEN_LATER_MS_MAX,
        ),
        Finding("CPU a token, event loop in-process", spread(IN_PROCESS, "cpu_seconds", per_token), "us", 1, "", None),
        Finding(
            "CPU a token, event loop of the front end", spread(WORKER, "cpu_seconds", per_token), "us", 1, "", None
        ),
        Finding(
            "CPU a token, event loop of the worker", spread(WORKER, "worker_cpu_seconds", per_token), "us", 1, "", None
        ),
    ]


def compare_recovery(source: Path, cache: Path, rounds: int) -> list[Finding]:
    with WorkerProcess("tests.bench.lane_process", WORKER, str(source), str(cache)) as process:
        order = {"recover": True, "content": "Say hello.", "max_tokens": RECOVERY_TOKENS}
        runs = [process.ask(order) for _ in range(rounds)]
    loads = [float(run["load_seconds"]) for run in runs]
    recoveries = [float(run["recovery_seconds"]) for run in runs]
    ratio = ratio_by_round(recoveries, loads)
    met = ratio.median <= RECOVERY_RATIO_MAX
    return [
        Finding("first token of a cached load", Spread.of(loads), "s", 2, "", None),
        Finding("first token after SIGKILL of the worker", Spread.of(recoveries), "s", 2, "", None),
        Finding("recovery to a cached load", ratio, "x", 2, f"<= {RECOVERY_RATIO_MAX}", met),
    ]


def compare_replicas(one: Daemon, two: Daemon, end_tokens: list[int], rounds: int) -> list[Finding]:
    """Tokens of all clients over the time until the last has its answer."""

    def speed(daemon: Daemon, clients: ThreadPoolExecutor, number: int, variety: int) -> float:
        bodies = [
            chat_request(f"Count from {variety + client} upwards.", end_tokens, max_tokens=REPLICA_TOKENS)
            for client in range(number)
        ]
        start = time.perf_counter()
        streams = list(clients.map(lambda body: stream_over_http(daemon.address, body), bodies))
        return sum(stream.token_count for stream in streams) / (time.perf_counter() - start)

    findings: list[Finding] = []
    for number in REPLICA_CLIENTS:
        speeds: dict[Daemon, list[float]] = {one: [], two: []}
        with ThreadPoolExecutor(number) as clients:
            for index in range(-1, rounds):
                for daemon in (one, two)[:: 1 if index % 2 else -1]:
                    measured = speed(daemon, clients, number, (index + 2) * 100)
                    if index >= 0:
                        speeds[daemon].append(measured)
        findings += [
            Finding(f"one replica, {number} clients", Spread.of(speeds[one]), "tok/s", 1, "", None),
            Finding(f"two replicas, {number} clients", Spread.of(speeds[two]), "tok/s", 1, "", None),
            Finding(
                f"two replicas to one, {number} clients", ratio_by_round(speeds[two], speeds[one]), "x", 2, "", None
            ),
        ]
    return findings
