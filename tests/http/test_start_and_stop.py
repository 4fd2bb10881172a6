"""From the first socket to the last: loading is visible, keys guard, shutdown lets running requests finish."""

from __future__ import annotations

import signal
import socket
import threading
from pathlib import Path

import httpx
import openai
import pytest
from tests.http.conftest import StartDaemon
from tests.http.daemon_process import MODEL, Daemon, chat_bytes, error_of

from edgellm.errors import ForcedShutdownError

LONG = {"max_tokens": 60, "logit_bias": {"2": -100}}


def test_the_socket_opens_at_once_and_says_the_stage(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon("--cache-dir", str(tmp_path / "cold"), ready=False)
    ready = httpx.get(f"{daemon.url}/health/ready")
    if ready.status_code == 503:  # else it was loaded before this line ran
        assert ready.json()["models"][MODEL]["state"] == "loading"
        assert ready.json()["models"][MODEL]["stage"]
        assert ready.headers["retry-after"]
        [model] = httpx.get(f"{daemon.url}/v1/models").json()["data"]
        assert model["id"] == MODEL
        early = daemon.chat()
        assert early.status_code in (200, 503)
        if early.status_code == 503:
            assert early.json()["error"]["code"] == "model_loading"
    assert httpx.get(f"{daemon.url}/health/live").status_code == 200
    daemon.wait_until_ready().still_serves()


def test_the_daemon_holds_neither_a_model_nor_what_reads_one(daemon: Daemon) -> None:
    mapped = Path(f"/proc/{daemon.process.pid}/maps").read_text()
    assert "/numpy/" not in mapped
    assert ".gguf" not in mapped


def test_shutdown_finishes_what_runs_and_sends_away_what_comes(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    received: list[bytes] = []
    # A connection that is already open can still ask; new ones can too, until what runs has ended.
    with socket.create_connection(daemon.address) as running:
        running.sendall(chat_bytes(stream=True, **{**LONG, "max_tokens": 400}))
        first = running.recv(1)
        daemon.terminate()
        daemon.wait_for(lambda: daemon.health()["status"] == "shutting_down")
        refused = daemon.chat()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert int(refused.headers["retry-after"]) >= 1
        assert httpx.get(f"{daemon.url}/health/ready").status_code == 503
        received.append(first)
        while data := running.recv(65536):
            received.append(data)
    assert b"data: [DONE]" in b"".join(received)
    assert daemon.exit_code() == 0


def test_what_outlives_the_drain_is_cancelled_with_an_error(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--shutdown-drain", "0.2")
    with socket.create_connection(daemon.address) as running:
        running.sendall(chat_bytes(stream=True, **{**LONG, "max_tokens": 4000}))
        received = running.recv(1)
        daemon.terminate()
        while data := running.recv(65536):
            received += data
    assert b'"code":"shutting_down"' in received
    assert b"[DONE]" not in received
    assert daemon.exit_code() == ForcedShutdownError.exit_code
    assert "1 request(s) cut short, 0 worker(s) killed" in daemon.log


def test_an_idle_daemon_stops_at_once_on_either_signal(start_daemon: StartDaemon) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        daemon = start_daemon()
        with socket.create_connection(daemon.address):  # an idle connection holds nobody up
            daemon.process.send_signal(number)
            assert daemon.exit_code() == 0


def test_keys_guard_everything_but_what_is_public(start_daemon: StartDaemon, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice:alices-long-secret-key\nbob:bobs-long-secret-key\n")
    keys.chmod(0o600)
    daemon = start_daemon("--api-keys-file", str(keys), "--host", "127.0.0.1")
    for path in ("/v1/models", f"/v1/models/{MODEL}", "/metrics", "/docs", "/openapi.json", "/health", "/nothing"):
        answer = httpx.get(f"{daemon.url}{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    for path in ("/health/live", "/health/ready", "/"):
        assert httpx.get(f"{daemon.url}{path}").status_code == 200
    assert MODEL not in httpx.get(f"{daemon.url}/").text
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="alices-long-secret-key", max_retries=0) as client:
        assert client.models.list().data[0].id == MODEL
    with (
        openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()
    non_ascii = (
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xc3\xbc\r\nConnection: close\r\n\r\n"
    )
    assert error_of(daemon.talk(non_ascii))[0] == 401


def test_a_prefix_of_one_client_is_no_saving_of_another(start_daemon: StartDaemon, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice:alices-long-secret-key\nbob:bobs-long-secret-key\n")
    keys.chmod(0o600)
    daemon = start_daemon("--api-keys-file", str(keys), "--host", "127.0.0.1")
    body = {"messages": [{"role": "user", "content": "The sea is wide. " * 40}], "max_tokens": 2, "temperature": 0}

    def cached_tokens(key: str) -> int:
        headers = {"Authorization": f"Bearer {key}"}
        answer = daemon.post("/v1/chat/completions", body, headers=headers).json()
        cached: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        texts.append(answer["choices"][0]["message"]["content"])
        return cached

    def context_cache(admitted: int) -> int:
        """Sequences that found a prefix, as the runtime itself counts them, once it has counted so many in all."""

        def counters() -> dict[str, int]:
            health = httpx.get(f"{daemon.url}/health", headers={"x-api-key": "alices-long-secret-key"}).json()
            found: dict[str, int] = health["models"][MODEL]["lanes"][0]["context_cache"] or {}
            return found

        daemon.wait_for(lambda: counters().get("admitted_sequences", 0) - warm_up == admitted)
        return counters()["hit_sequences"]

    texts: list[str] = []
    warm_up = 1
    assert cached_tokens("alices-long-secret-key") == 0
    assert cached_tokens("bobs-long-secret-key") == 0
    assert context_cache(admitted=2) == 0
    assert cached_tokens("alices-long-secret-key") > 100
    assert context_cache(admitted=3) == 1
    assert len(set(texts)) == 1


def test_llm_serve_is_the_same_server(model_source: Path, tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    program = f"from edgellm import LLM; LLM({str(model_source)!r}).serve(port={port}, served_model_name='{MODEL}')"
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    errors: list[str] = []
    assert process.stderr is not None
    reader = threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True)
    reader.start()
    try:
        answered = _until_answered(f"http://127.0.0.1:{port}", process, errors)
        assert answered["choices"][0]["message"]["content"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def _until_answered(url: str, process: object, errors: list[str]) -> dict[str, list[dict[str, dict[str, str]]]]:
    import time

    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            answer = httpx.post(
                f"{url}/v1/chat/completions",
                json={"messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 3},
                timeout=60,
            )
        except httpx.TransportError:
            time.sleep(0.05)
            continue
        if answer.status_code == 200:
            whole: dict[str, list[dict[str, dict[str, str]]]] = answer.json()
            return whole
    raise AssertionError("".join(errors))
