from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from edgellm.engines import store
from edgellm.engines.build_profile import BuildProfile
from edgellm.engines.bundle import Bundle
from edgellm.engines.fingerprint import PlatformFingerprint
from edgellm.engines.progress import Progress
from edgellm.engines.source import ModelSource, SourceKind, resolve
from edgellm.engines.store import prepare
from edgellm.errors import CacheError, ConfigError, ModelSourceError

DEADLINE_SECONDS = 120
# Forked children would inherit the lock that the test holds.
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def source(gguf_copy: Path, tmp_path: Path) -> ModelSource:
    return resolve(str(gguf_copy), tmp_path / "models")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@contextmanager
def held_lock(cache: Path, bundle_name: str) -> Iterator[None]:
    (cache / "engines").mkdir(parents=True, exist_ok=True)
    descriptor = os.open(cache / "engines" / f".{bundle_name}.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def visible(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "engines").iterdir() if not path.name.endswith(".lock"))


def test_a_bundle_is_built_once_and_found_again(source: ModelSource, cache: Path) -> None:
    seen: list[Progress] = []
    built = prepare(source, cache, on_progress=seen.append)
    assert built.directory.parent == cache / "engines"
    assert built.directory.name.startswith("copy-")
    assert visible(cache) == [built.directory.name]
    assert seen[-1].stage == "validate"
    seen.clear()
    assert prepare(source, cache, on_progress=seen.append) == built
    assert seen == []


def test_the_model_file_is_an_independent_copy(source: ModelSource, cache: Path) -> None:
    bundle = prepare(source, cache)
    assert bundle.model_file.read_bytes() == source.path.read_bytes()
    assert not bundle.model_file.is_symlink()
    assert bundle.model_file.stat().st_ino != source.path.stat().st_ino
    source.path.write_bytes(b"changed by its owner")
    assert Bundle.load(bundle.directory) == bundle


def test_the_key_follows_content_and_not_path(source: ModelSource, cache: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "copy.gguf"
    elsewhere.parent.mkdir()
    shutil.copy(source.path, elsewhere)
    assert prepare(ModelSource(SourceKind.GGUF, elsewhere, "copy"), cache) == prepare(source, cache)


def test_a_changed_weight_is_another_bundle(source: ModelSource, cache: Path) -> None:
    first = prepare(source, cache)
    content = bytearray(source.path.read_bytes())
    content[-1] ^= 1
    source.path.write_bytes(content)
    assert prepare(source, cache).directory != first.directory


def test_quantisation_and_lowering_version_are_keyed(
    pristine_checkpoint: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = resolve(str(pristine_checkpoint), tmp_path / "models")
    auto = prepare(source, cache)
    assert prepare(source, cache, profile=BuildProfile(quantisation="q8_0")) == auto
    assert prepare(source, cache, profile=BuildProfile(quantisation="f16")).directory != auto.directory
    monkeypatch.setattr(
        store.PlatformFingerprint, "native", lambda: PlatformFingerprint("native", {"lowering_version": 10_000})
    )
    assert prepare(source, cache).directory != auto.directory


def test_lengths_and_batch_share_one_bundle(source: ModelSource, cache: Path) -> None:
    long = BuildProfile(max_input_len=100, max_batch_size=8, max_kv_cache_capacity=200)
    assert prepare(source, cache, profile=long) == prepare(source, cache)


def test_an_unknown_quantisation_is_refused() -> None:
    with pytest.raises(ConfigError, match="quantisation 'q9' is not one of auto, f32"):
        BuildProfile(quantisation="q9")


def test_a_gguf_file_is_not_quantised_again(source: ModelSource, cache: Path) -> None:
    with pytest.raises(ConfigError, match="served as they are: leave quantisation at auto"):
        prepare(source, cache, profile=BuildProfile(quantisation="q8_0"))


@pytest.mark.parametrize("name", ["config.json", "llm.gguf", "tokenizer.json"])
def test_a_damaged_bundle_is_built_again(source: ModelSource, cache: Path, name: str) -> None:
    bundle = prepare(source, cache)
    (bundle.directory / name).write_bytes(b"")
    assert prepare(source, cache) == bundle
    assert (bundle.directory / name).stat().st_size > 0
    assert visible(cache) == [bundle.directory.name]


def test_a_model_id_that_is_no_file_name_is_kept_in_the_bundle_only(source: ModelSource, cache: Path) -> None:
    bundle = prepare(ModelSource(SourceKind.GGUF, source.path, "../é weird/" + "x" * 200), cache)
    assert bundle.model_id.startswith("../é weird/")
    assert bundle.directory.parent == cache / "engines"
    assert len(bundle.directory.name) < 120


def test_leftovers_of_killed_builds_are_removed_and_running_ones_kept(source: ModelSource, cache: Path) -> None:
    engines = cache / "engines"
    engines.mkdir(parents=True)
    dead, alive = engines / ".staging-other-0123-aaaa", engines / ".staging-busy-4567-bbbb"
    for staging in (dead, alive):
        staging.mkdir()
        (staging / "llm.gguf").write_bytes(b"x")
    with held_lock(cache, "busy-4567"):
        bundle = prepare(source, cache)
        assert visible(cache) == [alive.name, bundle.directory.name]


def _build_and_die(source: ModelSource, cache: Path, reached: Event) -> None:
    def stop(progress: Progress) -> None:
        if progress.stage == "validate":
            reached.set()
            os.kill(os.getpid(), signal.SIGKILL)

    prepare(source, cache, on_progress=stop)


def test_a_build_that_is_killed_leaves_no_bundle_and_the_next_succeeds(source: ModelSource, cache: Path) -> None:
    reached = SPAWN.Event()
    child = SPAWN.Process(target=_build_and_die, args=(source, cache, reached))
    child.start()
    child.join(DEADLINE_SECONDS)
    assert child.exitcode == -signal.SIGKILL
    assert reached.is_set()
    assert all(name.startswith(".staging-") for name in visible(cache))
    bundle = prepare(source, cache)
    assert visible(cache) == [bundle.directory.name]


def _prepare_in_child(source: ModelSource, cache: Path) -> None:
    prepare(source, cache)


def test_a_second_process_waits_and_uses_the_result(source: ModelSource, cache: Path) -> None:
    name = prepare(source, cache).directory.name
    shutil.rmtree(cache / "engines" / name)
    with held_lock(cache, name):
        children = [SPAWN.Process(target=_prepare_in_child, args=(source, cache)) for _ in range(3)]
        for child in children:
            child.start()
    for child in children:
        child.join(DEADLINE_SECONDS)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert visible(cache) == [name]


def test_waiting_is_told(source: ModelSource, cache: Path) -> None:
    name = prepare(source, cache).directory.name
    shutil.rmtree(cache / "engines" / name)
    lock = held_lock(cache, name)
    lock.__enter__()
    seen: list[Progress] = []

    def on_progress(progress: Progress) -> None:
        if not seen:
            lock.__exit__(None, None, None)
        seen.append(progress)

    prepare(source, cache, on_progress=on_progress)
    assert (seen[0].stage, seen[-1].stage) == ("wait", "validate")


def test_a_failing_build_leaves_nothing(source: ModelSource, cache: Path) -> None:
    def fail(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(source, cache, on_progress=fail)
    assert visible(cache) == []


def test_a_read_only_cache_is_named(source: ModelSource) -> None:
    # A file system where nobody may make folders, not even root.
    with pytest.raises(CacheError, match=r"^/sys/edgellm/engines: the cache cannot be written .*EDGELLM_CACHE_DIR"):
        prepare(source, Path("/sys/edgellm"))


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EROFS, "cannot be written"),
        (errno.EACCES, "cannot be written"),
        (errno.ENOSPC, "no space left"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_what_the_file_system_refuses_is_said_with_the_remedy(
    source: ModelSource, cache: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(store.tempfile, "mkdtemp", refuse)
    with pytest.raises(CacheError, match=f"{cache}/engines: .*{reason}"):
        prepare(source, cache)


def test_too_little_space_is_refused_with_numbers(
    source: ModelSource, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SPARE_DISK_BYTES", 1 << 60)
    with pytest.raises(CacheError, match=r"needs \d+ MiB, \d+ MiB are free"):
        prepare(source, cache)


def test_a_hit_needs_no_lock_and_no_write(source: ModelSource, cache: Path) -> None:
    bundle = prepare(source, cache)
    with held_lock(cache, bundle.directory.name):
        assert prepare(source, cache) == bundle


def test_a_source_that_vanished_is_refused(source: ModelSource, cache: Path) -> None:
    source.path.unlink()
    with pytest.raises(ModelSourceError, match="No such file"):
        prepare(source, cache)
