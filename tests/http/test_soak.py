"""Thousands of requests whose clients leave whenever they like: everything is free again afterwards, memory too."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.http.daemon_process import MODEL, Daemon
from tests.http.test_worker_loss import worker_pids
from tests.models.tiny_checkpoints import VARIANTS
from tests.models.tiny_gguf import write_gguf

from edgellm.runtime.process_memory import resident_memory

CLIENTS = 48
SEED = 20261129
REQUESTS_OF_SLICE = 600
REQUESTS = 10_000
ANSWER_TOKENS_MAX = 48
PROMPT_WORDS_MAX = 60
CLIENT_DEADLINE_SECONDS = 300.0
# Allocators and caches find their size in the first requests; a leak would grow with each of the rest.
WARM_UP_REQUESTS_OF_SLICE = 400
WARM_UP_REQUESTS = 5_000
GROWTH_BYTES_MAX = 6 * 2**20


@contextmanager
def tiny_daemon(folder: Path) -> Iterator[Daemon]:
    model = write_gguf(folder / "tiny.gguf", VARIANTS["llama"], "Q8_0")
    # 8 slots and a queue of 8 for 48 clients: requests run, wait and are turned away.
    options = ("--replicas", "2", "--threads", "1", "--max-batch-size", "4", "--max-queued-requests", "8")
    daemon = Daemon(model, "--cache-dir", str(folder / "cache"), "--log-level", "warning", *options)
    try:
        yield daemon.wait_until_ready()
    finally:
        daemon.stop()


async def one_request(daemon: Daemon, dice: random.Random) -> str:
    """What came of it: a status, or that the client left and when."""
    prompt = " ".join(dice.choice("abcdefgh") for _ in range(dice.randint(1, PROMPT_WORDS_MAX)))
    fields = {"max_tokens": dice.randint(1, ANSWER_TOKENS_MAX), "temperature": 1, "stream": dice.random() < 0.6}
    body = json.dumps({"messages": [{"role": "user", "content": prompt}], **fields}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    reader, writer = await asyncio.open_connection(*daemon.address)
    try:
        writer.write(head + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        leaves = dice.choice(["never", "never", "at once", "soon", "after the head", "in the middle"])
        if leaves == "at once":
            return leaves
        if leaves == "soon":
            await asyncio.sleep(dice.random() * 0.05)
            return leaves
        status_line = await reader.readline()
        if leaves == "after the head":
            return leaves
        if leaves == "in the middle":
            await reader.read(dice.randint(1, 2000))
            return leaves
        await reader.read()
        return status_line.split(b" ", 2)[1].decode()
    finally:
        writer.transport.abort()


async def send(daemon: Daemon, requests: int, dice: random.Random) -> Counter[str]:
    ends: Counter[str] = Counter()
    left = iter(range(requests))

    async def client() -> None:
        for _ in left:
            async with asyncio.timeout(CLIENT_DEADLINE_SECONDS):
                ends[await one_request(daemon, dice)] += 1

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return ends


def held_bytes(daemon: Daemon, pids: list[int]) -> list[int]:
    """Of the front end and of each worker."""
    return [memory.unreclaimable_bytes for pid in (daemon.process.pid, *pids) if (memory := resident_memory(pid))]


def samples(daemon: Daemon, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(daemon.get("/metrics").text)
        for sample in family.samples
        if sample.name == name
    }


def soak(daemon: Daemon, warm_up_requests: int, requests: int) -> None:
    dice = random.Random(SEED)  # the same each time
    pids = worker_pids(daemon)
    assert len(pids) == 2
    asyncio.run(send(daemon, warm_up_requests, dice))
    daemon.wait_for(daemon.is_idle)
    before = held_bytes(daemon, pids)
    ends = asyncio.run(send(daemon, requests, dice))
    daemon.wait_for(daemon.is_idle)
    print(dict(ends))  # shown when it fails, and with -s
    assert ends.total() == requests
    assert ends["200"] > requests / 20
    assert set(ends) <= {"200", "429", "at once", "soon", "after the head", "in the middle"}

    # Everything is free again, on both sides of the frames.
    for gauge in ("edgellm_running_sequences", "edgellm_waiting_requests", "edgellm_lanes_busy"):
        assert samples(daemon, gauge) == {(MODEL,): 0.0}, gauge
    assert samples(daemon, "edgellm_lanes_active") == {(MODEL,): 2.0}
    assert samples(daemon, "edgellm_lanes_lost_total") == {(MODEL,): 0.0}
    assert worker_pids(daemon) == pids
    daemon.wait_for(lambda: all(lane["scheduling"]["resident"] == 0 for lane in daemon.model_health()["lanes"]))
    # Every request was answered or seen to leave, once.
    routes = samples(daemon, "edgellm_http_responses_total")
    chats = sum(value for labels, value in routes.items() if "/v1/chat/completions" in labels)
    assert chats == warm_up_requests + requests
    outcomes = samples(daemon, "edgellm_requests_total")
    assert sum(value for labels, value in outcomes.items() if "error" in labels) == 0
    assert sum(outcomes.values()) <= warm_up_requests + requests
    grown = [after - first for after, first in zip(held_bytes(daemon, pids), before, strict=True)]
    print([f"{bytes_ / 2**20:.1f} MiB" for bytes_ in grown])
    assert max(grown) < GROWTH_BYTES_MAX, grown
    assert daemon.text("Say hello.", max_tokens=2) is not None


@pytest.mark.long
@pytest.mark.ci_slice
def test_clients_that_leave_at_any_point_cost_nothing(tmp_path: Path) -> None:
    with tiny_daemon(tmp_path) as daemon:
        soak(daemon, WARM_UP_REQUESTS_OF_SLICE, REQUESTS_OF_SLICE)


@pytest.mark.long
def test_ten_thousand_requests_leave_everything_as_it_was(tmp_path: Path) -> None:
    with tiny_daemon(tmp_path) as daemon:
        soak(daemon, WARM_UP_REQUESTS, REQUESTS)
