"""The HTTP daemon against the Python API, four streams against one, and a second turn against a cold one.

Both sides get the same chat messages and sampling, end tokens are forbidden so that every answer has the same length,
and each runs with its own default number of threads. The client is a bare socket in this process that reads bytes
while a stream runs and parses them afterwards: the little it costs counts against HTTP. Rounds alternate between the
two sides.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.bench.statistics_of_rounds import Spread, ratio_by_round
from tests.bench.worker_process import WorkerProcess
from tests.http.daemon_process import Daemon

STREAM_TOKENS = 128
PARALLEL_STREAMS = 4
SHARED_PREFIX_WORDS = 960
SECOND_TURN_TOKENS = 8
CLIENT_TIMEOUT_SECONDS = 600

WORDS = (
    "river",
    "stone",
    "amber",
    "quiet",
    "engine",
    "market",
    "yellow",
    "seven",
    "paper",
    "garden",
    "signal",
    "north",
)


@dataclass(frozen=True, slots=True)
class StreamTimes:
    first_delta_seconds: float
    seconds: float
    token_count: int
    prompt_tokens: int = 0
    cached_tokens: int = 0
    text: str = ""

    @property
    def tokens_per_second(self) -> float:
        return self.token_count / self.seconds


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table: a value with its unit, and the target it has, if any."""

    measure: str
    value: Spread
    unit: str
    digits: int
    target: str
    met: bool | None


def _without_chunk_lengths(body: bytes) -> tuple[bytes, list[int]]:
    """The payload of a chunked body, and for each chunk where in the body it ended."""
    payload, ends, position = b"", [], 0
    while True:
        line_end = body.index(b"\r\n", position)
        length = int(body[position:line_end], 16)
        position = line_end + 2 + length
        payload += body[line_end + 2 : position]
        ends.append(position)
        position += 2
        if length == 0:
            return payload, ends


def stream_over_http(address: tuple[str, int], body: Mapping[str, Any]) -> StreamTimes:
    """One streamed answer. While it runs only bytes are read and the time noted: parsing comes after."""
    content = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    pieces: list[tuple[float, bytes]] = []
    start = time.perf_counter()
    with socket.create_connection(address, timeout=CLIENT_TIMEOUT_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(head.encode() + content)
        while piece := connection.recv(65536):
            pieces.append((time.perf_counter() - start, piece))
    received = b"".join(piece for _, piece in pieces)
    status, _, rest = received.partition(b"\r\n\r\n")
    if b" 200 " not in status[:20]:
        raise RuntimeError(received[:500].decode("utf-8", "replace"))
    payload, chunk_ends = _without_chunk_lengths(rest)
    events = [json.loads(line[6:]) for line in payload.splitlines() if line.startswith(b"data: {")]
    texts = [event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"]]
    usage = events[-1]["usage"]
    # The first chunk with text: everything up to its end has been received by then.
    first_with_text = next(index for index, text in enumerate(texts) if text)
    needed = len(received) - len(rest) + chunk_ends[first_with_text]
    arrived = 0
    for first_delta_seconds, piece in pieces:  # noqa: B007 - used after the loop
        arrived += len(piece)
        if arrived >= needed:
            break
    return StreamTimes(
        first_delta_seconds,
        pieces[-1][0],
        usage["completion_tokens"],
        usage["prompt_tokens"],
        usage["prompt_tokens_details"]["cached_tokens"],
        "".join(texts),
    )


def chat_request(content: str, end_tokens: Sequence[int], **fields: Any) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": content}],
        "max_tokens": STREAM_TOKENS,
        "temperature": 0,
        "logit_bias": {str(token): -100 for token in end_tokens},
        "reuse_context": False,
        **fields,
    }


def compare_with_direct(daemon: Daemon, direct: WorkerProcess, end_tokens: Sequence[int], rounds: int) -> list[Finding]:
    one_http: list[StreamTimes] = []
    one_direct: list[StreamTimes] = []
    four_http: list[float] = []

    def over_http(variety: int) -> StreamTimes:
        return stream_over_http(daemon.address, chat_request(f"Count from {variety} upwards.", end_tokens))

    def directly(variety: int) -> StreamTimes:
        return StreamTimes(**direct.ask(chat_request(f"Count from {variety} upwards.", end_tokens)))

    over_http(0)
    directly(0)
    with ThreadPoolExecutor(PARALLEL_STREAMS) as clients:
        for index in range(1, rounds + 1):
            if index % 2:
                one_http.append(over_http(index))
                one_direct.append(directly(index))
            else:
                one_direct.append(directly(index))
                one_http.append(over_http(index))
            start = time.perf_counter()
            streams = list(clients.map(over_http, range(index * 10, index * 10 + PARALLEL_STREAMS)))
            four_http.append(sum(stream.token_count for stream in streams) / (time.perf_counter() - start))
    wrong = [stream.token_count for stream in one_http + one_direct if stream.token_count != STREAM_TOKENS]
    if wrong:
        raise RuntimeError(f"streams of {wrong} tokens, expected {STREAM_TOKENS}: not comparable")
    http_speeds = [stream.tokens_per_second for stream in one_http]
    direct_speeds = [stream.tokens_per_second for stream in one_direct]
    speed_ratio = ratio_by_round(http_speeds, direct_speeds)
    later = Spread.of(
        [
            1000 * (ours.first_delta_seconds - theirs.first_delta_seconds)
            for ours, theirs in zip(one_http, one_direct, strict=True)
        ]
    )
    four = ratio_by_round(four_http, http_speeds)
    return [
        Finding("one HTTP stream", Spread.of(http_speeds), "tok/s", 1, "", None),
        Finding("one direct stream", Spread.of(direct_speeds), "tok/s", 1, "", None),
        Finding("HTTP to direct, one stream", speed_ratio, "x", 3, ">= 0.97", speed_ratio.median >= 0.97),
        Finding("first delta, HTTP later than direct", later, "ms", 1, "<= 5", later.median <= 5),
        Finding("four HTTP streams to one", four, "x", 2, ">= 1.3", four.median >= 1.3),
    ]


def long_system_prompt(variety: int) -> str:
    """About 1,000 tokens that no earlier round has used."""
    chosen = [
        WORDS[(index * index + variety * 31 + index * variety) % len(WORDS)] for index in range(SHARED_PREFIX_WORDS)
    ]
    return f"Notes number {variety}: " + " ".join(chosen)


def compare_second_turn(daemon: Daemon, end_tokens: Sequence[int], rounds: int) -> list[Finding]:
    """The same second turn twice: after its first turn, and with the context cache bypassed."""
    warm, cold, cached, prompt_tokens = [], [], [], []
    for index in range(rounds):
        first_turn = [
            {"role": "system", "content": long_system_prompt(index)},
            {"role": "user", "content": "Which word comes first?"},
        ]
        request = chat_request("", end_tokens, max_tokens=SECOND_TURN_TOKENS, reuse_context=True)
        answer = stream_over_http(daemon.address, {**request, "messages": first_turn})
        second_turn = [
            *first_turn,
            {"role": "assistant", "content": answer.text},
            {"role": "user", "content": "And which comes last?"},
        ]
        reused = stream_over_http(daemon.address, {**request, "messages": second_turn})
        computed = stream_over_http(daemon.address, {**request, "messages": second_turn, "reuse_context": False})
        if computed.cached_tokens != 0 or reused.text != computed.text:
            raise RuntimeError("the cold turn used the cache, or the two answers differ: not comparable")
        warm.append(reused.first_delta_seconds)
        cold.append(computed.first_delta_seconds)
        cached.append(float(reused.cached_tokens))
        prompt_tokens.append(float(reused.prompt_tokens))
    sooner = ratio_by_round(cold, warm)
    return [
        Finding("second turn, prompt", Spread.of(prompt_tokens), "tokens", 0, "", None),
        Finding("second turn, reused", Spread.of(cached), "tokens", 0, "", None),
        Finding("first delta, cold", Spread.of([1000 * value for value in cold]), "ms", 0, "", None),
        Finding("first delta, after its first turn", Spread.of([1000 * value for value in warm]), "ms", 0, "", None),
        Finding("second turn sooner than cold", sooner, "x", 1, ">= 5", sooner.median >= 5),
    ]
