"""Our front end against a bare Starlette loop over the same synthetic source, in turns, each in its own process.

The client reads bytes while streams run and counts events afterwards: every chunk must have come as one event.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from tests.bench.http_comparison import CLIENT_TIMEOUT_SECONDS, Finding
from tests.bench.statistics_of_rounds import Spread, ratio_by_round
from tests.bench.synthetic_source import STEP
from tests.bench.worker_process import WorkerProcess

MICROSECONDS_PER_SECOND = 1e6
CPU_RATIO_MAX = 0.7
SPEED_RATIO_MIN = 1.5
PACED_STREAMS = (1, 8, 32)
PACED_STEPS = 300
PACE_SECONDS = 0.005  # about a step of the small model on two cores
FULL_SPEED_STREAMS = (1, 8, 32)
TARGET_STREAMS_MIN = 8  # the targets name 8 and 32 streams
NOISY_ROUNDS_FACTOR = 3  # waking a process for one write costs now this, now twice this
FULL_SPEED_CHUNKS = 40_000

REQUEST_BODY = json.dumps(
    {"model": "synthetic", "messages": [{"role": "user", "content": "Say words"}], "stream": True, "max_tokens": 8000}
).encode()


class Client:
    """Opens streams, reads them all in one loop until the last has ended, and counts their events."""

    def __init__(self, port: int, streams: int) -> None:
        self._received: dict[socket.socket, list[bytes]] = {}
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n" % port
        head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(REQUEST_BODY)
        for _ in range(streams):
            connection = socket.create_connection(("127.0.0.1", port), timeout=CLIENT_TIMEOUT_SECONDS)
            connection.sendall(head + REQUEST_BODY)
            self._received[connection] = []

    def read_all(self) -> list[int]:
        """The number of text events of each stream."""
        with selectors.DefaultSelector() as selector:
            for connection in self._received:
                connection.setblocking(False)
                selector.register(connection, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select(CLIENT_TIMEOUT_SECONDS):
                    connection = key.fileobj  # type: ignore[assignment]
                    piece = connection.recv(1 << 18)
                    if piece:
                        self._received[connection].append(piece)
                    else:
                        selector.unregister(connection)
                        connection.close()
        return [b"".join(pieces).count(b'"content":') for pieces in self._received.values()]


class FrontEnd:
    """One server over a synthetic source, in a process of its own."""

    def __init__(self, worker_module: str, pipe: Path) -> None:
        os.mkfifo(pipe)
        self._worker = WorkerProcess(worker_module, str(pipe))
        self._steps = pipe.open("wb", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._steps.close()
        self._worker.__exit__(None, None, None)

    def run(self, streams: int, steps: int, interval_seconds: float) -> dict[str, float]:
        """Seconds of ``wall`` and of the server's CPU; ``interval_seconds`` 0 is as fast as the server goes."""
        client = Client(self._worker.description["port"], streams)
        with ThreadPoolExecutor(1) as reader:
            reading = reader.submit(client.read_all)
            self._worker.ask({"streams": streams, "steps": steps})
            if interval_seconds:
                start = time.perf_counter()
                for step in range(steps):
                    time.sleep(max(0.0, start + step * interval_seconds - time.perf_counter()))
                    self._steps.write(STEP)
            else:  # all at once, since a loop beside the client's thread would be slower than the server
                self._steps.write(STEP * steps)
            spent = self._worker.ask({})
            events = reading.result()
        if events != [steps] * streams:
            raise RuntimeError(f"{steps} chunks came as {sorted(set(events))} events: not comparable")
        return {name: float(value) for name, value in spent.items()}


def compare_front_ends(folder: Path, rounds: int) -> list[Finding]:
    with (
        FrontEnd("tests.bench.edgellm_front_end", folder / "edgellm.steps") as ours,
        FrontEnd("tests.bench.starlette_front_end", folder / "starlette.steps") as theirs,
        FrontEnd("tests.bench.bare_write_front_end", folder / "bare_write.steps") as floor,
    ):
        findings: list[Finding] = []
        for streams in PACED_STREAMS:
            turns = rounds if streams >= TARGET_STREAMS_MIN else NOISY_ROUNDS_FACTOR * rounds
            all_runs = _in_turns(turns, (ours, theirs, floor), streams, PACED_STEPS, PACE_SECONDS)
            what = f"{_counted(streams)} at a chunk each {1000 * PACE_SECONDS:.0f} ms"
            findings += _cpu_findings(what, all_runs, streams * PACED_STEPS, streams)
        for streams in FULL_SPEED_STREAMS:
            steps = FULL_SPEED_CHUNKS // streams
            all_runs = _in_turns(rounds, (ours, theirs, floor), streams, steps, 0)
            what = f"{_counted(streams)} at full speed"
            findings += _cpu_findings(what, all_runs, streams * steps, streams)
            speeds = [[streams * steps / run["wall_seconds"] for run in runs] for runs in all_runs[:2]]
            speed_min = SPEED_RATIO_MIN if streams >= TARGET_STREAMS_MIN else None
            findings += _speed_findings(what, speeds, speed_min)
        return findings


def _counted(streams: int) -> str:
    return f"{streams} {'stream' if streams == 1 else 'streams'}"


def _in_turns(
    rounds: int, servers: Sequence[FrontEnd], streams: int, steps: int, interval_seconds: float
) -> list[list[dict[str, float]]]:
    """Whoever goes first changes from round to round; a first run of each is thrown away."""
    all_runs: list[list[dict[str, float]]] = [[] for _ in servers]
    for index in range(-1, rounds):
        for turn in range(len(servers)):
            server = (index + turn) % len(servers)
            spent = servers[server].run(streams, steps, interval_seconds)
            if index >= 0:
                all_runs[server].append(spent)
    return all_runs


def _cpu_findings(
    what: str, all_runs: Sequence[Sequence[dict[str, float]]], chunks: int, streams: int
) -> list[Finding]:
    """With one stream the floor is most of it, so that what is above it is reported there too."""
    ours, theirs, floor = ([MICROSECONDS_PER_SECOND * run["cpu_seconds"] / chunks for run in runs] for runs in all_runs)
    ratio = ratio_by_round(ours, theirs)
    has_target = streams >= TARGET_STREAMS_MIN
    met = ratio.median <= CPU_RATIO_MAX
    target = f"<= {CPU_RATIO_MAX}"
    findings = [
        Finding(f"CPU a chunk, {what}: edgellm", Spread.of(ours), "us", 1, "", None),
        Finding(f"CPU a chunk, {what}: Starlette", Spread.of(theirs), "us", 1, "", None),
        Finding(f"CPU a chunk, {what}: floor", Spread.of(floor), "us", 1, "", None),
        Finding(
            f"CPU a chunk, {what}: ratio", ratio, "x", 2, target if has_target else "", met if has_target else None
        ),
    ]
    if not has_target:
        lowest = Spread.of(floor).median
        over = Spread.of([(Spread.of(ours).median - lowest) / (Spread.of(theirs).median - lowest)])
        findings.append(Finding(f"CPU a chunk, {what}: ratio above the floor", over, "x", 2, "", None))
    return findings


def _speed_findings(what: str, speeds: Sequence[Sequence[float]], ratio_min: float | None) -> list[Finding]:
    ours, theirs = speeds
    ratio = ratio_by_round(ours, theirs)
    target, is_met = ("", None) if ratio_min is None else (f">= {ratio_min}", ratio.median >= ratio_min)
    return [
        Finding(f"{what}: edgellm", Spread.of(ours), "chunks/s", 0, "", None),
        Finding(f"{what}: Starlette", Spread.of(theirs), "chunks/s", 0, "", None),
        Finding(f"{what}: ratio", ratio, "x", 2, target, is_met),
    ]
