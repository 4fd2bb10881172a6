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
SPEED_TARGET_STREAMS_MIN = 8
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
    ):
        findings: list[Finding] = []
        for streams in PACED_STREAMS:
            costs = [
                [MICROSECONDS_PER_SECOND * run["cpu_seconds"] / (streams * PACED_STEPS) for run in runs]
                for runs in _in_turns(rounds, ours, theirs, streams, PACED_STEPS, PACE_SECONDS)
            ]
            findings += _cpu_findings(
                f"{_counted(streams)} at a chunk each {1000 * PACE_SECONDS:.0f} ms", costs, CPU_RATIO_MAX
            )
        for streams in FULL_SPEED_STREAMS:
            steps = FULL_SPEED_CHUNKS // streams
            both = _in_turns(rounds, ours, theirs, streams, steps, 0)
            costs = [
                [MICROSECONDS_PER_SECOND * run["cpu_seconds"] / (streams * steps) for run in runs] for runs in both
            ]
            speeds = [[streams * steps / run["wall_seconds"] for run in runs] for runs in both]
            speed_min = SPEED_RATIO_MIN if streams >= SPEED_TARGET_STREAMS_MIN else None
            findings += _cpu_findings(f"{_counted(streams)} at full speed", costs, CPU_RATIO_MAX)
            findings += _speed_findings(f"{_counted(streams)} at full speed", speeds, speed_min)
        return findings


def _counted(streams: int) -> str:
    return f"{streams} {'stream' if streams == 1 else 'streams'}"


def _in_turns(
    rounds: int, ours: FrontEnd, theirs: FrontEnd, streams: int, steps: int, interval_seconds: float
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Whoever goes first changes from round to round; a first run of each is thrown away."""
    runs: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
    for index in range(-1, rounds):
        for side in (0, 1) if index % 2 else (1, 0):
            spent = (ours, theirs)[side].run(streams, steps, interval_seconds)
            if index >= 0:
                runs[side].append(spent)
    return runs


def _cpu_findings(what: str, costs: Sequence[Sequence[float]], ratio_max: float) -> list[Finding]:
    ours, theirs = costs
    ratio = ratio_by_round(ours, theirs)
    return [
        Finding(f"CPU a chunk, {what}: edgellm", Spread.of(ours), "us", 1, "", None),
        Finding(f"CPU a chunk, {what}: Starlette", Spread.of(theirs), "us", 1, "", None),
        Finding(f"CPU a chunk, {what}: ratio", ratio, "x", 2, f"<= {ratio_max}", ratio.median <= ratio_max),
    ]


def _speed_findings(what: str, speeds: Sequence[Sequence[float]], ratio_min: float | None) -> list[Finding]:
    ours, theirs = speeds
    ratio = ratio_by_round(ours, theirs)
    target, is_met = ("", None) if ratio_min is None else (f">= {ratio_min}", ratio.median >= ratio_min)
    return [
        Finding(f"{what}: edgellm", Spread.of(ours), "chunks/s", 0, "", None),
        Finding(f"{what}: Starlette", Spread.of(theirs), "chunks/s", 0, "", None),
        Finding(f"{what}: ratio", ratio, "x", 2, target, is_met),
    ]
