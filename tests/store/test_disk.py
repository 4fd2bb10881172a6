"""Disks that are full, read-only or limited: a sentence that says what to do, and nothing half published."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.models.bundles import lease_of, stored_bundle
from tests.store.conftest import StartStore, mounted_memory, visible

from edgellm.engines import store
from edgellm.engines.source import resolve
from edgellm.errors import CacheError


def test_too_small_a_disk_is_refused_with_numbers(start: StartStore, small_gguf: Path, tmp_path: Path) -> None:
    with mounted_memory(tmp_path / "small", "8m") as cache:
        error = start(small_gguf, cache).until("error")
        assert error["error"] == "CacheError"
        assert "MiB are free — free space there or set EDGELLM_CACHE_DIR" in error["message"]
        assert visible(cache) == []


def test_a_disk_that_fills_during_the_build_is_told(start: StartStore, slow_checkpoint: Path, tmp_path: Path) -> None:
    with mounted_memory(tmp_path / "small", "120m") as cache:
        one = start(slow_checkpoint, cache, "--fill-disk-at", "lower")
        error = one.until("error")
        assert error["error"] == "CacheError"
        assert error["message"].startswith(f"{cache}/engines: no space left — free some or set EDGELLM_CACHE_DIR")
        one.end()
        assert visible(cache) == []
        assert start(slow_checkpoint, cache).until("leased")


def test_room_is_made_by_evicting_what_was_used_least_recently(
    small_gguf: Path, slow_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SPARE_DISK_BYTES", 1 << 20)
    with mounted_memory(tmp_path / "small", "32m") as cache:
        source = resolve(str(slow_checkpoint), tmp_path)
        old = stored_bundle(source, cache, "f16").directory
        kept = lease_of(resolve(str(small_gguf), tmp_path), cache)
        assert stored_bundle(source, cache, "q8_0").directory.exists()
        assert not old.exists()
        assert kept.directory.exists()
        kept.close()


def test_a_limit_on_file_sizes_is_told(start: StartStore, slow_checkpoint: Path, cache: Path) -> None:
    one = start(slow_checkpoint, cache, "--file-bytes-max", "200000")
    error = one.until("error")
    assert error["error"] == "CacheError"
    assert "a file of this size is not allowed there — raise the limit (ulimit -f)" in error["message"]
    one.end()
    assert visible(cache) == []


def test_a_read_only_cache_serves_what_it_has_and_refuses_to_build(
    small_gguf: Path, slow_checkpoint: Path, tmp_path: Path
) -> None:
    with mounted_memory(tmp_path / "image", "200m") as cache:
        bundle = stored_bundle(resolve(str(small_gguf), tmp_path), cache)
        (cache / "engines" / f".staging-{'0' * 16}-left").mkdir()
        subprocess.run(["mount", "-o", "remount,ro", str(cache)], check=True)
        with lease_of(resolve(str(small_gguf), tmp_path), cache) as lease:
            assert lease.directory == bundle.directory
        with pytest.raises(CacheError, match=r"the cache cannot be written .*set EDGELLM_CACHE_DIR"):
            lease_of(resolve(str(slow_checkpoint), tmp_path), cache)
        subprocess.run(["mount", "-o", "remount,rw", str(cache)], check=True)


def test_a_cache_of_another_user_is_named(small_gguf: Path, cache: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    cache.mkdir(mode=0o555)
    with pytest.raises(CacheError, match=f"{cache}/engines: the cache cannot be written"):
        lease_of(resolve(str(small_gguf), tmp_path), cache)
