from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest
from tests.models.bundles import lease_of

from edgellm.engines.derived_parts import PartKind, find_part
from edgellm.engines.engine_key import EngineKey
from edgellm.engines.lease import Lease, hold_bundle
from edgellm.engines.manifest import Manifest
from edgellm.engines.source import ModelSource, resolve
from edgellm.engines.store import Store
from edgellm.errors import CheckpointError

KIND = PartKind("panels-test", {"kernel_set": "test", "layout_version": 1})
CONTENT = b"made of the bundle"


@pytest.fixture
def source(gguf_copy: Path, tmp_path: Path) -> ModelSource:
    return resolve(str(gguf_copy), tmp_path / "models")


@pytest.fixture
def lease(source: ModelSource, tmp_path: Path) -> Lease:
    return lease_of(source, tmp_path / "cache")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache" / "engines", ())


def write(folder: Path) -> bool:
    (folder / "panels.bin").write_bytes(CONTENT)
    return True


def never(_folder: Path) -> bool:
    raise AssertionError("there is one already")


def key_of(lease: Lease) -> EngineKey:
    return lease.manifest.key


def leftovers(store: Store) -> list[str]:
    return [path.name for path in store.writable.iterdir() if path.name.startswith(".staging")]


def test_a_part_is_made_once_and_found_from_then_on(store: Store, lease: Lease) -> None:
    with store.with_part(lease, KIND, write, 100) as held:
        folder = find_part(held.directory, held.manifest, KIND)
        assert folder is not None
        assert (folder / "panels.bin").read_bytes() == CONTENT
        assert folder == held.directory / "derived" / KIND.name
        with store.with_part(hold(held), KIND, never, 100) as again:
            assert find_part(again.directory, again.manifest, KIND) == folder
    assert not leftovers(store)


def hold(lease: Lease) -> Lease:
    held = hold_bundle(lease.directory, read_only=False)
    assert held is not None
    return held


def test_a_part_counts_in_the_store_and_not_in_the_bundle(store: Store, lease: Lease) -> None:
    before_bytes = lease.manifest.size_bytes
    with store.with_part(lease, KIND, write, 100) as held:
        assert held.manifest.size_bytes == before_bytes
        (entry,) = store.entries()
        assert entry.size_bytes == before_bytes + len(CONTENT)
        assert held.manifest.without_derived().derived == {}
        assert list(store.verify(entry)) == []
        (held.directory / "derived" / KIND.name / "panels.bin").write_bytes(b"x" * len(CONTENT))
        (problem,) = store.verify(entry)
        assert "panels.bin" in problem
        assert "SHA-256" in problem


@pytest.mark.parametrize("damage", ["missing", "short", "another version", "folder gone"])
def test_a_part_that_does_not_fit_is_as_good_as_none_and_made_anew(store: Store, lease: Lease, damage: str) -> None:
    with store.with_part(lease, KIND, write, 100) as held:
        folder = held.directory / "derived" / KIND.name
    if damage == "missing":
        (folder / "panels.bin").unlink()
    elif damage == "short":
        (folder / "panels.bin").write_bytes(CONTENT[:-1])
    elif damage == "folder gone":
        shutil.rmtree(folder.parent)
    kind = PartKind(KIND.name, {**KIND.key, "layout_version": 2}) if damage == "another version" else KIND
    again = store.lease(key_of(held))
    assert again is not None
    assert find_part(again.directory, again.manifest, kind) is None
    with store.with_part(again, kind, write, 100) as mended:
        assert find_part(mended.directory, mended.manifest, kind) is not None


def test_a_loaded_bundle_keeps_its_manifest_and_serves_without_a_part(store: Store, lease: Lease) -> None:
    inode = (lease.directory / "manifest.json").stat().st_ino
    with hold(lease), store.with_part(lease, KIND, write, 100) as held:
        assert find_part(held.directory, held.manifest, KIND) is None
        assert (held.directory / "manifest.json").stat().st_ino == inode
    assert not leftovers(store)


def test_a_part_that_cannot_be_made_is_told_and_is_no_error(
    store: Store, lease: Lease, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_folder: Path) -> bool:
        raise CheckpointError("the weights are odd")

    with caplog.at_level(logging.WARNING), store.with_part(lease, KIND, fail, 100) as held:
        assert held.manifest.derived == {}
    assert "the weights are odd" in caplog.text
    assert KIND.name in caplog.text
    assert not leftovers(store)


def test_where_there_is_nothing_to_make_the_bundle_stays_as_it_is(store: Store, lease: Lease) -> None:
    content = (lease.directory / "manifest.json").read_bytes()
    with store.with_part(lease, KIND, lambda _folder: False, 100) as held:
        assert (held.directory / "manifest.json").read_bytes() == content
        assert not (held.directory / "derived").exists()


def test_a_part_larger_than_the_cap_is_not_kept(store: Store, lease: Lease, caplog: pytest.LogCaptureFixture) -> None:
    small = Store(store.writable, (), max_size_bytes=lease.manifest.size_bytes)
    with caplog.at_level(logging.WARNING), small.with_part(lease, KIND, never, lease.manifest.size_bytes + 1) as held:
        assert held.manifest.derived == {}
    assert "engine_cache_max_size_gb" in caplog.text


def test_a_read_only_root_is_never_written(store: Store, lease: Lease) -> None:
    key = key_of(lease)
    lease.close()
    baked = Store(store.writable.parent / "other", (store.writable,))
    held = baked.lease(key)
    assert held is not None
    assert held.read_only
    with baked.with_part(held, KIND, never, 100) as same:
        assert same is held


def test_the_manifest_that_names_a_part_reads_back(store: Store, lease: Lease) -> None:
    with store.with_part(lease, KIND, write, 100) as held:
        path = held.directory / "manifest.json"
        values = json.loads(path.read_bytes())
        assert values["derived"][KIND.name]["key"] == dict(KIND.key)
        assert Manifest.read(path) == held.manifest
