"""Several clients at a time: each gets what it would get alone, and who leaves makes room."""

from __future__ import annotations

import re
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.http.conftest import StartDaemon
from tests.http.daemon_process import MODEL, Daemon, chat_bytes

PROMPTS = [
    "What is the capital of France?",
    "Name a colour.",
    "Count to five.",
    "Write a short poem about rain.",
    "What is two plus two?",
    "Say hello in Spanish.",
    "Who wrote Hamlet?",
    "Describe a mountain.",
]
LONG = {"max_tokens": 2000, "logit_bias": {"2": -100}}  # the end token is banned: it runs until it is stopped


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.0, "seed": 5}], ids=["greedy", "seeded"])
def test_each_gets_what_it_gets_alone(daemon: Daemon, sampling: dict[str, float]) -> None:
    def ask(prompt: str) -> str:
        return daemon.text(prompt, max_tokens=24, **sampling)

    alone = [ask(prompt) for prompt in PROMPTS]
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        together = list(pool.map(ask, PROMPTS))
    assert together == alone


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_client_that_leaves_frees_its_slot(daemon: Daemon, stream: bool) -> None:
    cancelled_before = daemon.scheduling("cancelled")
    with socket.create_connection(daemon.address) as connection:
        named = b"Host: localhost\r\nX-Request-ID: leaves-%d" % stream
        connection.sendall(chat_bytes(stream=stream, **LONG).replace(b"Host: localhost", named))
        daemon.wait_for(lambda: daemon.model_health()["running"] == 1)
        if stream:
            connection.recv(100)
    daemon.wait_for(daemon.is_idle)
    logged = rf"POST /v1/chat/completions {200 if stream else 499} \S+ s leaves-{stream:d}$"
    daemon.wait_for(lambda: re.search(logged, daemon.log, re.MULTILINE) is not None)
    daemon.wait_for(lambda: daemon.scheduling("cancelled") > cancelled_before)


def test_a_queued_client_that_leaves_never_starts(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--max-batch-size", "1", "--max-queued-requests", "1")
    daemon.wait_for(lambda: daemon.scheduling("submitted") == 1)  # the warm-up
    with socket.create_connection(daemon.address) as running:
        running.sendall(chat_bytes(**LONG))
        daemon.wait_for(lambda: daemon.model_health()["running"] == 1)
        with socket.create_connection(daemon.address) as queued:
            queued.sendall(chat_bytes(stream=True, **LONG))
            daemon.wait_for(lambda: daemon.model_health()["waiting"] == 1)
            full = daemon.chat()
            assert full.status_code == 429
            assert full.json()["error"]["code"] == "server_busy"
            assert int(full.headers["retry-after"]) >= 1
        daemon.wait_for(lambda: daemon.model_health()["waiting"] == 0)
    daemon.wait_for(daemon.is_idle)
    daemon.wait_for(lambda: daemon.scheduling("cancelled") == 1)
    assert daemon.scheduling("submitted") == 2
    metrics = httpx.get(f"{daemon.url}/metrics").text
    assert f'edgellm_requests_total{{model="{MODEL}",outcome="disconnected"}} 2.0' in metrics
    assert f'edgellm_requests_total{{model="{MODEL}",outcome="saturated"}} 1.0' in metrics
    daemon.still_serves()


def test_without_a_queue_a_busy_model_refuses_and_a_short_queue_times_out(start_daemon: StartDaemon) -> None:
    for options in (("--max-queued-requests", "0"), ("--queue-timeout", "0.2")):
        daemon = start_daemon("--max-batch-size", "1", *options)
        with socket.create_connection(daemon.address) as running:
            running.sendall(chat_bytes(**LONG))
            daemon.wait_for(lambda daemon=daemon: daemon.model_health()["running"] == 1)  # type: ignore[misc]
            for stream in (False, True):
                busy = daemon.chat(stream=stream)
                assert (busy.status_code, busy.json()["error"]["code"]) == (429, "server_busy")
                assert int(busy.headers["retry-after"]) >= 1
        daemon.wait_for(daemon.is_idle)
        daemon.still_serves()


def test_a_request_over_its_time_ends_and_frees_its_slot(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--request-timeout", "0.5")
    whole = daemon.chat(**LONG)
    assert (whole.status_code, whole.json()["error"]["code"]) == (504, "request_timeout")
    streamed = daemon.chat(stream=True, **LONG)
    assert streamed.status_code == 200
    assert '"code":"request_timeout"' in streamed.text
    assert "[DONE]" not in streamed.text
    daemon.wait_for(daemon.is_idle)
    daemon.still_serves()


def test_one_id_runs_once_at_a_time(daemon: Daemon) -> None:
    header = {"X-Request-ID": "one-id"}
    body = chat_bytes(**LONG).replace(b"Host: localhost", b"Host: localhost\r\nX-Request-ID: one-id")
    with socket.create_connection(daemon.address) as running:
        running.sendall(body)
        daemon.wait_for(lambda: daemon.model_health()["running"] == 1)
        again = daemon.post("/v1/completions", {"model": MODEL, "prompt": "x", "max_tokens": 1}, headers=header)
        assert (again.status_code, again.json()["error"]["code"]) == (409, "duplicate_request_id")
    daemon.wait_for(daemon.is_idle)
    later = daemon.post("/v1/completions", {"model": MODEL, "prompt": "x", "max_tokens": 1}, headers=header)
    assert (later.status_code, later.headers["x-request-id"], later.json()["id"]) == (200, "one-id", "cmpl-one-id")
