"""What goes wrong with a hub, a network or a disk: one sentence each, nothing half, and no token in it."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hub.hub_server import KNOWN_USER, SIGNATURE, STRANGER, HubServer

from edgellm.engines.hub.client import HubClient
from edgellm.engines.hub.download import Fetched, fetch
from edgellm.engines.hub.hub_id import parse_hub_id
from edgellm.engines.progress import Progress
from edgellm.engines.source import refuse_folder, resolve
from edgellm.errors import (
    CacheError,
    ConfigError,
    EdgeLLMError,
    HubAccessError,
    HubUnavailableError,
    ModelSourceError,
)

ID = "tiny-org/tiny-model"


class Attempt:
    """One fetch that waits for nobody; ``waits`` are the seconds it would have waited."""

    def __init__(self, models_dir: Path, model: str = ID) -> None:
        self.models_dir = models_dir
        self.waits: list[float] = []
        self.steps: list[Progress] = []
        hub_id = parse_hub_id(model)
        assert hub_id is not None
        self._id = hub_id

    def run(self) -> Fetched:
        client = HubClient(self._id, self.steps.append, sleep=self.waits.append)
        return fetch(self._id, self.models_dir, refuse_folder, self.steps.append, client)

    def refusal(self, error: type[EdgeLLMError]) -> str:
        with pytest.raises(error) as caught:
            self.run()
        assert type(caught.value) is error
        return str(caught.value)


@pytest.fixture
def attempt(models_dir: Path) -> Attempt:
    return Attempt(models_dir)


@pytest.fixture(autouse=True)
def nothing_secret_is_said(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    said = caplog.text + "".join(capfd.readouterr())
    for secret in (KNOWN_USER, STRANGER, SIGNATURE):
        assert secret not in said


@pytest.fixture
def shard(checkpoint_files: dict[str, bytes]) -> str:
    """The path of the largest file on the second host."""
    data = max((data for name, data in checkpoint_files.items() if name.startswith("model-")), key=len)
    return hashlib.sha256(data).hexdigest()


def test_a_missing_repository(hub: HubServer, attempt: Attempt) -> None:
    message = attempt.refusal(ModelSourceError)
    assert f"{ID}: {hub.url} has no such repository that may be read without a token (401)" in message
    assert "nor is it a folder here — check the spelling" in message
    assert "HF_TOKEN" in message


def test_a_missing_repository_with_a_token(hub: HubServer, attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", KNOWN_USER)
    assert "has no such repository that this token may read (404)" in attempt.refusal(ModelSourceError)


def test_a_private_repository_of_others(
    hub: HubServer, attempt: Attempt, checkpoint_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repository(ID, checkpoint_files, private=True)
    monkeypatch.setenv("HF_TOKEN", STRANGER)
    assert "has no such repository that this token may read (404)" in attempt.refusal(ModelSourceError)
    monkeypatch.setenv("HF_TOKEN", KNOWN_USER)
    assert attempt.run().path.is_dir()


def test_a_refused_token(hub: HubServer, attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_revoked_long_ago")
    message = attempt.refusal(HubAccessError)
    assert "refuses the token (401): it is wrong, expired or revoked" in message
    assert "hf_revoked_long_ago" not in message


def test_a_token_without_permission(
    hub: HubServer, attempt: Attempt, checkpoint_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repository(ID, checkpoint_files)
    hub.fail("/api/models", status=403, headers={"X-Error-Message": "no permission"})
    monkeypatch.setenv("HF_TOKEN", STRANGER)
    message = attempt.refusal(HubAccessError)
    assert "does not let this token read it (403) — give the token the permission to read" in message


def test_a_gated_repository(hub: HubServer, attempt: Attempt, checkpoint_files: dict[str, bytes]) -> None:
    hub.repository(ID, checkpoint_files, gated=True)
    message = attempt.refusal(HubAccessError)
    assert f"{ID} is gated (401) — accept its terms at {hub.url}/{ID}, then set HF_TOKEN" in message


def test_a_gated_repository_without_access(
    hub: HubServer, attempt: Attempt, checkpoint_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repository(ID, checkpoint_files, gated=True)
    monkeypatch.setenv("HF_TOKEN", STRANGER)
    assert "the account of this token may not read it (403) — ask for access" in attempt.refusal(HubAccessError)
    monkeypatch.setenv("HF_TOKEN", KNOWN_USER)
    assert attempt.run().path.is_dir()


def test_a_missing_revision(hub: HubServer, models_dir: Path, checkpoint_files: dict[str, bytes]) -> None:
    hub.repository(ID, checkpoint_files)
    message = Attempt(models_dir, f"{ID}@v9").refusal(ModelSourceError)
    assert f"{ID} has no revision 'v9' — give a branch, a tag or a commit" in message


def test_a_short_wait_that_the_hub_asks_for_is_waited(
    hub: HubServer, attempt: Attempt, checkpoint_files: dict[str, bytes]
) -> None:
    hub.repository(ID, checkpoint_files)
    hub.fail("/api/models", status=429, headers={"Retry-After": "7"})
    hub.fail("resolve/.*/config.json", status=429, headers={"Retry-After": "3"})
    assert attempt.run().path.is_dir()
    assert attempt.waits == [7, 3]
    assert any("waiting 7 s" in str(step) for step in attempt.steps)


def test_a_long_wait_that_the_hub_asks_for_is_said(hub: HubServer, attempt: Attempt) -> None:
    hub.fail("/api/models", status=429, headers={"Retry-After": "1800"})
    message = attempt.refusal(HubUnavailableError)
    assert "asks to wait (429) — try again in 1800 seconds" in message
    assert "with a token the limit is higher" in message
    assert attempt.waits == []


def test_a_hub_that_fails_is_tried_again_and_then_given_up(
    hub: HubServer, attempt: Attempt, checkpoint_files: dict[str, bytes]
) -> None:
    hub.repository(ID, checkpoint_files)
    hub.fail("/api/models", 2, status=503)
    hub.fail("resolve", 1, status=500)
    assert attempt.run().path.is_dir()
    shutil.rmtree(attempt.models_dir)
    hub.fail("/api/models", 99, status=503)
    assert "cannot answer now (503) — try again later" in attempt.refusal(HubUnavailableError)


def test_a_dropped_connection_goes_on_where_it_broke(
    hub: HubServer, attempt: Attempt, checkpoint_files: dict[str, bytes], shard: str
) -> None:
    hub.repository(ID, checkpoint_files)
    hub.fail(shard, 3, after_bytes=5000)
    assert attempt.run().path.is_dir()
    ranges = [seen.range for seen in hub.saw(shard)]
    assert ranges[0] == ""
    positions = [int(text.removeprefix("bytes=").removesuffix("-")) for text in ranges[1:]]
    assert len(positions) == 3
    assert 0 < positions[0] < positions[1] < positions[2] <= 15000


def test_a_connection_that_never_holds_is_given_up_and_what_came_is_kept(
    hub: HubServer, attempt: Attempt, checkpoint_files: dict[str, bytes], shard: str
) -> None:
    hub.repository(ID, checkpoint_files)
    hub.fail(shard, 1, after_bytes=5000)
    hub.fail(shard, 99, after_bytes=0)
    message = attempt.refusal(HubUnavailableError)
    assert "the connection broke 4 times while model-" in message
    assert "are kept — try again, it goes on from there" in message
    partial = next(attempt.models_dir.rglob("*.partial"))
    kept = partial.stat().st_size
    assert 0 < kept <= 5000
    assert not list(attempt.models_dir.rglob("snapshots/*"))
    hub.mend()
    assert attempt.run().path.is_dir()
    assert hub.saw(shard)[-1].range == f"bytes={kept}-"


def test_a_hub_that_ignores_ranges_sends_it_anew(
    hub: HubServer, attempt: Attempt, checkpoint_files: dict[str, bytes], shard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repository(ID, checkpoint_files)
    hub.fail(shard, 1, after_bytes=5000)
    hub.ignores_ranges = True
    fetched = attempt.run()
    for path in fetched.path.iterdir():
        assert path.read_bytes() == checkpoint_files[path.name]


def test_a_file_changed_on_the_way_is_not_kept(
    hub: HubServer, attempt: Attempt, checkpoint_files: dict[str, bytes], shard: str
) -> None:
    hub.repository(ID, checkpoint_files)
    hub.fail(shard, change=lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    assert "arrived with another content than" in attempt.refusal(ModelSourceError)
    assert not list(attempt.models_dir.rglob("*.partial"))
    assert attempt.run().path.is_dir()


def test_a_small_file_changed_on_the_way_is_not_kept(
    hub: HubServer, attempt: Attempt, checkpoint_files: dict[str, bytes]
) -> None:
    hub.repository(ID, checkpoint_files)
    hub.fail("resolve-cache/.*/generation_config.json", change=lambda data: data.replace(b"{", b"[", 1))
    assert "generation_config.json arrived with another content" in attempt.refusal(ModelSourceError)


def test_more_bytes_than_announced_are_not_kept(
    hub: HubServer, attempt: Attempt, checkpoint_files: dict[str, bytes], shard: str
) -> None:
    hub.repository(ID, checkpoint_files)
    hub.fail(shard, change=lambda data: data + b"x" * 5_000_000)
    assert "arrived with another content" in attempt.refusal(ModelSourceError)


def test_no_network(attempt: Attempt, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://user:hf_secret@127.0.0.1:{unused.getsockname()[1]}")
        message = attempt.refusal(HubUnavailableError)
    assert "cannot reach http://127.0.0.1:" in message
    assert "hf_secret" not in message
    assert "check the network, HTTPS_PROXY and HF_ENDPOINT" in message


def test_no_network_serves_what_is_here(
    hub: HubServer, models_dir: Path, checkpoint_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repository(ID, checkpoint_files)
    first = resolve(ID, models_dir)
    hub.close()
    assert resolve(ID, models_dir) == first


def test_offline_mode_fetches_nothing_and_serves_what_is_here(
    hub: HubServer, models_dir: Path, checkpoint_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repository(ID, checkpoint_files)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(HubUnavailableError, match="HF_HUB_OFFLINE forbids to fetch it"):
        resolve(ID, models_dir)
    assert hub.requests == []
    monkeypatch.delenv("HF_HUB_OFFLINE")
    first = resolve(ID, models_dir)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert resolve(ID, models_dir) == first


def test_an_endpoint_that_is_no_hub(attempt: Attempt, hub: HubServer) -> None:
    hub.fail("/api/models", status=200, headers={"Content-Type": "application/json"})
    message = attempt.refusal(HubUnavailableError)
    assert "does not answer as a Hugging Face hub does" in message
    assert "check HF_ENDPOINT" in message


def test_a_token_file_that_is_not_there(
    attempt: Attempt, hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "nowhere"))
    assert "HF_TOKEN_PATH" in attempt.refusal(ConfigError)


def test_a_credential_that_is_not_there_is_no_token(
    attempt: Attempt,
    hub: HubServer,
    checkpoint_files: dict[str, bytes],
    models_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    hub.repository(ID, checkpoint_files)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    resolve(ID, models_dir)
    assert {seen.token for seen in hub.requests} == {""}
    (tmp_path / "hub-token").mkdir()
    assert "CREDENTIALS_DIRECTORY" in attempt.refusal(ConfigError)


def test_too_little_disk_is_refused_before_weights_are_fetched(
    attempt: Attempt, hub: HubServer, checkpoint_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repository(ID, checkpoint_files)
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=(64 << 20) + 300_000))
    message = attempt.refusal(CacheError)
    assert "the download needs" in message
    assert "EDGELLM_CACHE_DIR" in message
    assert not hub.saw("/resolve/.*safetensors$")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_disk_that_fills_up_says_so_and_keeps_what_came(
    hub: HubServer, checkpoint_files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        hub.repository(ID, checkpoint_files)
        usage = shutil.disk_usage("/")
        monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
        message = Attempt(folder / "models").refusal(CacheError)
        assert "no space left — free some or set EDGELLM_CACHE_DIR" in message
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_read_only_cache_says_so(hub: HubServer, checkpoint_files: dict[str, bytes], tmp_path: Path) -> None:
    hub.repository(ID, checkpoint_files)
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="file"):
        Attempt(tmp_path / "file" / "models").run()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"config.json": b"{}", "onnx_model.onnx": b"x"}, "an ONNX model, which is not supported"),
        (
            {"config.json": b"{}", "onnx/model.onnx": b"x", "tokenizer.json": b"{}"},
            "an ONNX model, which is not supported",
        ),
        ({"config.json": b"{}", "llm.engine": b"x"}, "an engine bundle, which is internal to the cache"),
        ({"config.json": b"{}", "llm.gguf": b"x", "tokenizer.json": b"{}"}, "an engine bundle"),
        ({"config.json": b"{}", "pytorch_model.bin": b"x"}, "convert them to safetensors"),
        ({"config.json": b"{}", "model.safetensors": b"x"}, "no tokenizer.json"),
        ({"README.md": b"x"}, "no config.json"),
        ({"a-Q4_0.gguf": b"x", "a-Q8_0.gguf": b"y"}, f"2 GGUF files — choose one, such as {ID}:a-Q4_0.gguf"),
        ({"a-00001-of-00002.gguf": b"x", "a-00002-of-00002.gguf": b"y"}, "split into parts"),
    ],
)
def test_a_repository_that_is_no_model_is_refused_before_it_is_fetched(
    hub: HubServer, attempt: Attempt, files: dict[str, bytes], expected: str
) -> None:
    hub.repository(ID, files)
    assert expected in attempt.refusal(ModelSourceError)
    assert not hub.saw("/resolve/")


def test_a_gguf_file_that_is_not_there_is_answered_with_those_that_are(hub: HubServer, models_dir: Path) -> None:
    hub.repository(ID, {"a-Q4_0.gguf": b"x", "a-Q8_0.gguf": b"y"})
    message = Attempt(models_dir, f"{ID}:Q5_K_M").refusal(ModelSourceError)
    assert f"no GGUF file is 'Q5_K_M' — choose one, such as {ID}:a-Q4_0.gguf, {ID}:a-Q8_0.gguf" in message


def test_an_index_that_names_what_is_not_there(
    hub: HubServer, attempt: Attempt, checkpoint_files: dict[str, bytes]
) -> None:
    files = {name: data for name, data in checkpoint_files.items() if not name.startswith("model-00001")}
    hub.repository(ID, files)
    assert "which the repository lacks" in attempt.refusal(ModelSourceError)
    assert not hub.saw("/resolve/.*safetensors$")


def test_two_that_fetch_at_once_fetch_once(
    hub: HubServer, models_dir: Path, checkpoint_files: dict[str, bytes], shard: str
) -> None:
    hub.repository(ID, checkpoint_files)
    attempts = [Attempt(models_dir) for _ in range(3)]
    threads = [threading.Thread(target=attempt.run) for attempt in attempts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(hub.saw(shard)) == 1
    assert not list(models_dir.rglob("*.partial"))
    assert all(attempt.run().path.is_dir() for attempt in attempts)


def test_a_killed_download_goes_on_where_it_was(
    hub: HubServer, models_dir: Path, checkpoint_files: dict[str, bytes], shard: str
) -> None:
    hub.repository(ID, checkpoint_files)
    held = threading.Event()
    hub.fail(shard, after_bytes=5000, hold=held)
    program = "import sys, pathlib, edgellm.engines.source as s; s.resolve(sys.argv[1], pathlib.Path(sys.argv[2]))"
    process = subprocess.Popen([sys.executable, "-c", program, ID, str(models_dir)])
    try:
        deadline = time.monotonic() + 60
        while not any(path.stat().st_size == 5000 for path in models_dir.rglob("*.partial")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        held.set()
    fetched = Attempt(models_dir).run()
    assert hub.saw(shard)[-1].range == "bytes=5000-"
    for path in fetched.path.iterdir():
        assert path.read_bytes() == checkpoint_files[path.name]
