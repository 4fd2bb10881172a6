"""Builder or parent killed at every stage: nothing half published, no lock lost, and the next one succeeds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from tests.store.conftest import DEADLINE_SECONDS, StartStore, visible

from edgellm.engines.bundle_files import problems_of
from edgellm.engines.manifest import Manifest


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline, f"process {pid} outlived its parent"
        time.sleep(0.01)


def assert_one_sound_bundle(cache: Path, directory: str) -> None:
    assert visible(cache) == [Path(directory).name]
    assert list(problems_of(Path(directory), Manifest.read(Path(directory) / "manifest.json"))) == []


@pytest.mark.parametrize("stage", ["start", "lower"])
def test_a_killed_builder_is_told_and_leaves_nothing(
    start: StartStore, slow_checkpoint: Path, cache: Path, stage: str
) -> None:
    one = start(slow_checkpoint, cache, "--quantisation", "q4_0", "--kill-builder-at", stage)
    error = one.until("error")
    assert error["error"] == "BuildFailedError"
    assert "was killed by signal 9 before its bundle was complete" in error["message"]
    one.end()
    assert visible(cache) == []
    leased = start(slow_checkpoint, cache, "--quantisation", "q4_0").until("leased")["leased"]
    assert_one_sound_bundle(cache, leased)


@pytest.mark.parametrize("stage", ["lower", "validate", "hash", "publish"])
def test_a_killed_parent_takes_its_builder_along_and_leaves_nothing_that_counts(
    start: StartStore, slow_checkpoint: Path, cache: Path, stage: str
) -> None:
    killed = start(slow_checkpoint, cache, "--quantisation", "q4_0", "--die-at", stage)
    lines = killed.end()
    assert killed.process.returncode == -signal.SIGKILL
    assert lines[-1]["stage"] == stage
    for pid in lines[0]["builders"]:
        wait_until_gone(pid)
    assert all(name.startswith(".staging-") for name in visible(cache))
    leased = start(slow_checkpoint, cache, "--quantisation", "q4_0").until("leased")["leased"]
    assert_one_sound_bundle(cache, leased)


@pytest.mark.parametrize("rename", [1, 2])
def test_a_death_between_the_steps_of_a_replacement_leaves_the_old_or_nothing(
    start: StartStore, small_gguf: Path, cache: Path, rename: int
) -> None:
    """The first rename takes a damaged bundle away, the second puts the new one in its place."""
    old = Path(start(small_gguf, cache).until("leased")["leased"])
    (old / "tokenizer.json").write_text("{}")
    killed = start(small_gguf, cache, "--die-at-rename", str(rename))
    killed.end()
    assert killed.process.returncode == -signal.SIGKILL
    assert old.exists() == (rename == 1)
    leased = start(small_gguf, cache).until("leased")["leased"]
    assert_one_sound_bundle(cache, leased)


def test_a_killed_waiter_and_a_killed_holder_lose_no_lock(
    start: StartStore, slow_checkpoint: Path, cache: Path
) -> None:
    builder = start(slow_checkpoint, cache, "--quantisation", "q4_0")
    builder.until("stage")
    builder.pause()
    waiters = [start(slow_checkpoint, cache, "--quantisation", "q4_0") for _ in range(2)]
    assert [waiter.until("stage")["stage"] for waiter in waiters] == ["wait", "wait"]
    waiters[0].process.kill()
    builder.process.kill()
    leased = waiters[1].until("leased")["leased"]
    assert_one_sound_bundle(cache, leased)


def test_a_lease_outlives_its_first_holder_in_a_process_that_inherited_it(
    start: StartStore, small_gguf: Path, cache: Path
) -> None:
    from edgellm.engines.store import Store

    leased = start(small_gguf, cache)
    name = Path(leased.until("leased")["leased"]).name
    store = Store(cache / "engines", ())
    assert store.prune(0).kept == {name: "loaded by a running process"}
    (entry,) = store.entries()
    assert entry.key is not None
    lease = store.lease(entry.key)
    assert lease is not None
    leased.end()
    assert store.prune(0).kept == {name: "loaded by a running process"}
    pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {}, file_actions=[(os.POSIX_SPAWN_DUP2, lease.fileno(), 9)])
    lease.close()
    assert store.prune(0).kept == {name: "loaded by a running process"}
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert [entry.name for entry in store.prune(0).removed] == [name]


def test_a_model_of_a_process_that_was_killed_is_evictable(start: StartStore, small_gguf: Path, cache: Path) -> None:
    from edgellm.engines.store import Store

    holder = start(small_gguf, cache)
    holder.until("leased")
    holder.process.kill()
    holder.process.wait()
    assert len(Store(cache / "engines", ()).prune(0).removed) == 1


def test_weights_cut_short_under_the_builder_publish_nothing(
    start: StartStore, slow_checkpoint: Path, cache: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(slow_checkpoint, tmp_path / "copy"))
    one = start(copy, cache, "--quantisation", "q4_0")
    (builder,) = one.until("stage")["builders"]
    os.kill(builder, signal.SIGSTOP)
    (shard,) = copy.glob("*.safetensors")
    os.truncate(shard, 100_000)
    os.kill(builder, signal.SIGCONT)
    lines = one.end()
    assert lines[-1]["error"] in ("BuildFailedError", "CheckpointError"), json.dumps(lines)
    assert visible(cache) == []
