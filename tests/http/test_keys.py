"""Keys of a running daemon: made, taken and revoked by the command while requests run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from tests.http.conftest import StartDaemon
from tests.http.daemon_process import MODEL, Daemon
from tests.http.test_command import edgellm

LONG_ANSWER = {"max_tokens": 4000, "temperature": 1.5, "logit_bias": {}}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def add(key_file: Path, name: str) -> str:
    added = edgellm("keys", "add", name, "--api-keys-file", str(key_file))
    assert added.returncode == 0, added.stderr
    return added.stdout.strip()


def revoke(key_file: Path, name: str) -> None:
    revoked = edgellm("keys", "revoke", name, "--api-keys-file", str(key_file))
    assert revoked.returncode == 0, revoked.stderr


def models_with(daemon: Daemon, key: str) -> int:
    return httpx.get(f"{daemon.url}/v1/models", headers={"x-api-key": key}).status_code


@pytest.fixture
def alice(key_file: Path) -> str:
    return add(key_file, "alice")


@pytest.fixture
def guarded(start_daemon: StartDaemon, key_file: Path, alice: str) -> Daemon:
    return start_daemon("--api-keys-file", str(key_file), "--host", "127.0.0.1", "--max-kv-cache-capacity", "8000")


@pytest.fixture
def client(guarded: Daemon, alice: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=alice, max_retries=0) as made:
        yield made


def test_keys_come_and_go_without_a_restart(guarded: Daemon, key_file: Path, alice: str) -> None:
    pid = guarded.process.pid
    assert (models_with(guarded, alice), models_with(guarded, "wrong")) == (200, 401)
    bob = add(key_file, "bob")
    guarded.wait_for(lambda: models_with(guarded, bob) == 200)
    revoke(key_file, "alice")
    guarded.wait_for(lambda: models_with(guarded, alice) == 401)
    assert models_with(guarded, bob) == 200
    revoke(key_file, "bob")
    guarded.wait_for(lambda: models_with(guarded, bob) == 401)
    assert httpx.get(f"{guarded.url}/v1/models").status_code == 401
    key_file.write_text("nonsense\n")
    guarded.wait_for(lambda: "API keys were not read anew" in guarded.log)
    assert models_with(guarded, bob) == 401
    again = _fresh(key_file, "carol")
    guarded.wait_for(lambda: models_with(guarded, again) == 200)
    assert guarded.process.pid == pid
    assert guarded.process.poll() is None
    assert not any(key in guarded.log for key in (alice, bob, again))


def _fresh(key_file: Path, name: str) -> str:
    key_file.unlink()
    return add(key_file, name)


def test_a_key_that_is_revoked_while_it_streams_ends_its_stream_alone(
    guarded: Daemon, key_file: Path, client: openai.OpenAI
) -> None:
    bob = add(key_file, "bob")
    guarded.wait_for(lambda: models_with(guarded, bob) == 200)
    messages = [{"role": "user", "content": "Write a very long story about the sea."}]
    with openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=bob, max_retries=0) as other:
        mine = client.chat.completions.create(model=MODEL, messages=messages, stream=True, extra_body=LONG_ANSWER)  # type: ignore[call-overload]
        theirs = other.chat.completions.create(model=MODEL, messages=messages, stream=True, max_tokens=300)  # type: ignore[arg-type]
        next(iter(mine))
        next(iter(theirs))
        revoke(key_file, "alice")
        with pytest.raises(openai.APIError) as broken_off:
            for _ in mine:
                pass
        assert broken_off.value.code == "invalid_api_key"
        assert list(theirs)[-1].choices[0].finish_reason in ("stop", "length")
    guarded.wait_for(lambda: _running(guarded, bob) == 0)


def _running(daemon: Daemon, key: str) -> int:
    running: int = httpx.get(f"{daemon.url}/health", headers={"x-api-key": key}).json()["running_requests"]
    return running


def test_a_hangup_reads_the_keys_and_drops_no_stream(guarded: Daemon, client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "Count to one hundred."}]
    stream = client.chat.completions.create(model=MODEL, messages=messages, stream=True, max_tokens=200)  # type: ignore[arg-type]
    next(iter(stream))
    os.kill(guarded.process.pid, signal.SIGHUP)
    guarded.wait_for(lambda: "API keys were read anew" in guarded.log)
    assert list(stream)[-1].choices[0].finish_reason in ("stop", "length")
    assert guarded.process.poll() is None


def test_a_client_over_its_rate_gets_an_honest_wait(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(env={**os.environ, "EDGELLM_SERVER_REQUESTS_PER_MINUTE": "2"})
    assert [daemon.chat().status_code for _ in range(2)] == [200, 200]
    refused = daemon.chat()
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limited")
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert httpx.get(f"{daemon.url}/health").status_code == 200


def test_beyond_this_machine_a_server_without_keys_does_not_start(start_daemon: StartDaemon, key_file: Path) -> None:
    open_to_all = start_daemon("--host", "0.0.0.0", ready=False)
    assert open_to_all.exit_code() == 78
    assert "set server.api_keys_file, bind 127.0.0.1, or say --insecure-no-keys" in open_to_all.log
    key_file.touch(mode=0o600)
    without_a_key = start_daemon("--api-keys-file", str(key_file), ready=False)
    assert without_a_key.exit_code() == 78
    assert "holds no key" in without_a_key.log
