"""The daemon and its engines: held while served, built or not at the start, cleared when asked."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.http.daemon_process import Daemon
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint

DEADLINE_SECONDS = 300


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny", VARIANTS["llama"])


@contextmanager
def daemon_of(checkpoint: Path, cache: Path, *options: str) -> Iterator[Daemon]:
    daemon = Daemon(checkpoint, "--cache-dir", str(cache), "--runtime", "native", *options)
    try:
        yield daemon
    finally:
        daemon.stop()


def engine(cache: Path, action: str, *words: str) -> Any:
    command = [sys.executable, "-m", "edgellm", "engine", action, *words, "--json", "--cache-dir", str(cache)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def wait_until_free(cache: Path) -> None:
    """A worker ends by itself soon after its daemon was killed."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while engine(cache, "list")[0]["loaded"]:
        assert time.monotonic() < deadline


def test_a_served_engine_is_held_until_the_daemon_ends(checkpoint: Path, tmp_path: Path) -> None:
    with daemon_of(checkpoint, tmp_path) as daemon:
        daemon.wait_until_ready()
        (entry,) = engine(tmp_path, "list")
        assert entry["loaded"]
        assert engine(tmp_path, "prune", "--to-gb", "0")["kept"] == {entry["name"]: "loaded by a running process"}
        assert engine(tmp_path, "clear")["kept"] == {entry["name"]: "loaded by a running process"}
        daemon.still_serves()
        daemon.process.kill()
        daemon.process.wait()
    wait_until_free(tmp_path)
    assert engine(tmp_path, "clear")["removed"][0]["name"] == entry["name"]


def test_an_engine_of_a_read_only_root_is_served_unlocked(checkpoint: Path, tmp_path: Path) -> None:
    """Such a root may be of an image that many containers share, on a file system that knows no locks."""
    engine(tmp_path / "maker", "build", str(checkpoint), "--runtime", "native")
    engine(tmp_path / "maker", "export", str(checkpoint), str(tmp_path / "archive"), "--runtime", "native")
    imported = engine(tmp_path / "maker", "import", str(tmp_path / "archive"), "--into", str(tmp_path / "image"))
    config = tmp_path / "edgellm.toml"
    config.write_text(f'[engines]\nread_only_dirs = ["{tmp_path / "image"}"]\nbuild_on_start = false\n')
    with daemon_of(checkpoint, tmp_path / "cache", "--config", str(config)) as daemon:
        daemon.wait_until_ready().still_serves()
        with (Path(imported["engine"]) / "manifest.json").open("rb") as manifest:
            fcntl.flock(manifest, fcntl.LOCK_EX | fcntl.LOCK_NB)


def workers_of(daemon: Daemon) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{daemon.process.pid}/task").iterdir():
        found += [int(pid) for pid in (task / "children").read_text().split()]
    return found


def test_an_engine_is_held_while_its_worker_is_replaced(checkpoint: Path, tmp_path: Path) -> None:
    with daemon_of(checkpoint, tmp_path) as daemon:
        daemon.wait_until_ready()
        (entry,) = engine(tmp_path, "list")
        (worker,) = workers_of(daemon)
        daemon.process.send_signal(signal.SIGSTOP)  # it cannot start the next one yet
        os.kill(worker, signal.SIGKILL)
        kept = engine(tmp_path, "prune", "--to-gb", "0")["kept"]
        daemon.process.send_signal(signal.SIGCONT)
        assert kept == {entry["name"]: "loaded by a running process"}
        daemon.wait_for(lambda: workers_of(daemon) not in ([worker], []))
        daemon.wait_until_ready().still_serves()


def test_where_a_start_must_not_build_a_missing_engine_has_its_own_exit_code(checkpoint: Path, tmp_path: Path) -> None:
    with daemon_of(checkpoint, tmp_path, "--no-build-on-start") as daemon:
        assert daemon.exit_code() == 72
    assert "building is off here" in daemon.log
    assert "run edgellm engine build" in daemon.log
    engine(tmp_path, "build", str(checkpoint), "--runtime", "native")
    with daemon_of(checkpoint, tmp_path, "--no-build-on-start") as daemon:
        daemon.wait_until_ready().still_serves()


def test_the_engine_cache_is_cleared_when_asked(checkpoint: Path, tmp_path: Path) -> None:
    (entry,) = engine(tmp_path, "build", str(checkpoint), "--runtime", "native")
    model_file = Path(entry["folder"]) / "llm.gguf"
    before = model_file.stat().st_ino, model_file.stat().st_mtime_ns
    with daemon_of(checkpoint, tmp_path) as daemon:
        daemon.wait_until_ready()
    assert (model_file.stat().st_ino, model_file.stat().st_mtime_ns) == before
    with daemon_of(checkpoint, tmp_path, "--clear-engine-cache") as daemon:
        daemon.wait_until_ready().still_serves()
    assert (model_file.stat().st_ino, model_file.stat().st_mtime_ns) != before
    assert f"removed the engine {entry['name']}" in daemon.log
