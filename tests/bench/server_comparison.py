"""Our daemon and llama.cpp's HTTP server under the same load of chat streams, taken in turns.

The same GGUF file, threads, sequences and messages; end tokens are forbidden, so that every answer has the same length;
neither reuses prompts. One loop reads the sockets of all clients and notes when bytes came; they are parsed afterwards.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from tests.bench.http_comparison import CLIENT_TIMEOUT_SECONDS, WORDS, Finding, chat_request
from tests.bench.statistics_of_rounds import Spread, ratio_by_round

SEQUENCES = 16
CONTEXT_TOKENS = 2048
ANSWER_TOKENS = 64
PROMPT_WORDS = 64
REQUESTS_OF_A_CLIENT = {1: 6, 4: 3, 16: 1}  # by the number of clients
MILLISECONDS_PER_SECOND = 1e3

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """Of one load: all tokens over its time, the median wait for a first token, the 99th percentile of gaps."""

    tokens_per_second: float
    first_token_seconds: float
    slow_gap_seconds: float


def request_bytes(address: Address, variety: int, end_tokens: Sequence[int]) -> bytes:
    words = " ".join(WORDS[(index * index + variety * 31) % len(WORDS)] for index in range(PROMPT_WORDS))
    body = chat_request(f"Story {variety} about: {words}", end_tokens, max_tokens=ANSWER_TOKENS)
    del body["reuse_context"]  # ours alone; it is off by the daemon's options
    content = json.dumps({**body, "stream": True}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


class Client:
    """One connection after the other; keeps what came and when."""

    def __init__(self, address: Address, requests: Sequence[bytes]) -> None:
        self._address = address
        self._left = list(requests)
        self.answers: list[list[tuple[float, bytes]]] = []

    def next_request(self) -> socket.socket | None:
        if not self._left:
            return None
        self.answers.append([(time.perf_counter(), b"")])
        connection = socket.create_connection(self._address, timeout=CLIENT_TIMEOUT_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(self._left.pop(0))
        connection.setblocking(False)
        return connection

    def received(self, piece: bytes) -> None:
        self.answers[-1].append((time.perf_counter(), piece))


def run_load(address: Address, clients: int, variety: int, end_tokens: Sequence[int]) -> LoadTimes:
    each = REQUESTS_OF_A_CLIENT[clients]
    waiting = [
        Client(address, [request_bytes(address, variety + number * each + one, end_tokens) for one in range(each)])
        for number in range(clients)
    ]
    start = time.perf_counter()
    with selectors.DefaultSelector() as selector:

        def begin(client: Client) -> None:
            connection = client.next_request()
            if connection is not None:
                selector.register(connection, selectors.EVENT_READ, client)

        for client in waiting:
            begin(client)
        while selector.get_map():
            for key, _ in selector.select(CLIENT_TIMEOUT_SECONDS):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                piece = connection.recv(1 << 18)
                if piece:
                    key.data.received(piece)
                else:
                    selector.unregister(connection)
                    connection.close()
                    begin(key.data)
    seconds = time.perf_counter() - start
    token_times = [_token_times(answer) for client in waiting for answer in client.answers]
    gaps = sorted(after - before for times, _ in token_times for before, after in pairwise(times))
    return LoadTimes(
        clients * each * ANSWER_TOKENS / seconds,
        median(times[0] - sent for times, sent in token_times),
        gaps[int(0.99 * len(gaps))],
    )


def _token_times(answer: Sequence[tuple[float, bytes]]) -> tuple[list[float], float]:
    """When each event with text had come whole, and when its request was sent."""
    sent = answer[0][0]
    received = b"".join(piece for _, piece in answer)
    if b" 200 " not in received[:20]:
        raise RuntimeError(received[:500].decode("utf-8", "replace"))
    times: list[float] = []
    pending = b""
    for when, piece in answer:
        *lines, pending = (pending + piece).split(b"\n")
        times += [when for line in lines if _has_text(line)]
    finished = b'"finish_reason":"length"' in received.replace(b": ", b":")
    if not finished or len(times) < ANSWER_TOKENS // 2:  # some tokens are no text of their own
        raise RuntimeError(f"{len(times)} events with text for {ANSWER_TOKENS} tokens: not comparable")
    return times, sent


def _has_text(line: bytes) -> bool:
    if not line.startswith(b"data: {"):
        return False
    event: Mapping[str, Any] = json.loads(line[6:])
    return bool(event["choices"] and event["choices"][0]["delta"].get("content"))


def compare_servers(ours: Address, theirs: Address, end_tokens: Sequence[int], rounds: int) -> list[Finding]:
    findings: list[Finding] = []
    for clients in REQUESTS_OF_A_CLIENT:
        runs: dict[Address, list[LoadTimes]] = {ours: [], theirs: []}
        for index in range(-1, rounds):
            for address in (ours, theirs)[:: 1 if index % 2 else -1]:
                run = run_load(address, clients, (index + 2) * 1000, end_tokens)
                if index >= 0:
                    runs[address].append(run)
        findings += _findings(clients, runs[ours], runs[theirs])
    return findings


def _findings(clients: int, ours: Sequence[LoadTimes], theirs: Sequence[LoadTimes]) -> list[Finding]:
    name = f"{clients} {'client' if clients == 1 else 'clients'}"
    findings: list[Finding] = []
    for measure, field, factor, unit, digits in (
        ("throughput", "tokens_per_second", 1.0, "tok/s", 1),
        ("first token", "first_token_seconds", MILLISECONDS_PER_SECOND, "ms", 0),
        ("p99 between tokens", "slow_gap_seconds", MILLISECONDS_PER_SECOND, "ms", 1),
    ):
        mine = [factor * getattr(run, field) for run in ours]
        other = [factor * getattr(run, field) for run in theirs]
        ratio = ratio_by_round(mine, other)
        more_is_better = measure == "throughput"
        met = ratio.median >= 1 if more_is_better else ratio.median <= 1
        findings += [
            Finding(f"{name}, {measure}: edgellm", Spread.of(mine), unit, digits, "", None),
            Finding(f"{name}, {measure}: llama.cpp", Spread.of(other), unit, digits, "", None),
            Finding(f"{name}, {measure}: ratio", ratio, "x", 2, ">= 1" if more_is_better else "<= 1", met),
        ]
    return findings
