"""Archives and disks: what does not fit is told, and nothing half is left on either side."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.models.bundles import lease_of
from tests.store.conftest import mounted_memory, visible

from edgellm.engines.archive.export import export_bundle
from edgellm.engines.archive.unpacking import import_archive
from edgellm.engines.native_builder import NativeBuilder
from edgellm.engines.source import resolve
from edgellm.engines.store import Store
from edgellm.errors import CacheError


@pytest.fixture
def archive(small_gguf: Path, tmp_path: Path) -> Path:
    with lease_of(resolve(str(small_gguf), tmp_path), tmp_path / "maker") as lease:
        export_bundle(lease, tmp_path / "archive", checkpoints={})
    return tmp_path / "archive"


def test_an_import_onto_too_small_a_disk_is_refused_with_numbers(archive: Path, tmp_path: Path) -> None:
    with mounted_memory(tmp_path / "small", "8m") as cache:
        with pytest.raises(CacheError, match=r"MiB are free — free space there or set EDGELLM_CACHE_DIR"):
            import_archive(archive, Store(cache / "engines", ()), cache / "models", {"native": NativeBuilder()})
        assert visible(cache) == []


def test_a_disk_that_fills_during_an_import_is_told(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    with mounted_memory(tmp_path / "small", "100k") as cache:
        with pytest.raises(CacheError, match="no space left — free some or set EDGELLM_CACHE_DIR"):
            import_archive(archive, Store(cache / "engines", ()), cache / "models", {"native": NativeBuilder()})
        assert visible(cache) == []


def test_a_disk_that_fills_during_an_export_is_told(small_gguf: Path, tmp_path: Path) -> None:
    with (
        mounted_memory(tmp_path / "small", "100k") as folder,
        lease_of(resolve(str(small_gguf), tmp_path), tmp_path / "maker") as lease,
    ):
        with pytest.raises(CacheError, match="no space left — free some or write it to a folder with more"):
            export_bundle(lease, folder / "archive", checkpoints={})
        assert list(folder.iterdir()) == []


def test_an_archive_is_made_of_and_taken_into_read_only_folders_alike(archive: Path, tmp_path: Path) -> None:
    """A bundle of an image is exported from where it is; a store whose folder cannot be written says so."""
    image = tmp_path / "image"
    imported = import_archive(archive, Store(image, ()), image, {"native": NativeBuilder()})
    store = Store(tmp_path / "nowhere", (image,))
    lease = store.lease(imported.manifest.key)
    assert lease is not None
    with lease:
        assert lease.read_only
        export_bundle(lease, tmp_path / "again", checkpoints={})
    assert (tmp_path / "again").read_bytes() == archive.read_bytes()
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="file"):
        import_archive(archive, Store(tmp_path / "file" / "engines", ()), tmp_path, {"native": NativeBuilder()})
