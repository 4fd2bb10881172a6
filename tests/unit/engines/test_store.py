from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.models.bundles import lease_of, stored_bundle

from edgellm.engines import file_system, store, store_staging
from edgellm.engines.build_profile import BuildProfile
from edgellm.engines.builder import BuildRequest
from edgellm.engines.bundle import Bundle
from edgellm.engines.bundle_files import check_at_load, record_files
from edgellm.engines.engine_key import EngineKey
from edgellm.engines.file_lock import lock_open_file
from edgellm.engines.fingerprint import PlatformFingerprint
from edgellm.engines.lease import hold_bundle
from edgellm.engines.manifest import Manifest
from edgellm.engines.native_builder import NativeBuilder, has_engine_of_gguf
from edgellm.engines.progress import Progress
from edgellm.engines.source import ModelSource, SourceKind, resolve
from edgellm.engines.store import Store
from edgellm.errors import (
    BundleDamagedError,
    CacheError,
    CheckpointError,
    ConfigError,
    EngineMissingError,
    ManifestVersionError,
    ModelSourceError,
)


@pytest.fixture
def source(gguf_copy: Path, tmp_path: Path) -> ModelSource:
    return resolve(str(gguf_copy), tmp_path / "models")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def pristine_cache(pristine_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once, for tests that are not about the build: they copy it."""
    folder = tmp_path_factory.mktemp("built")
    copy = shutil.copy(pristine_gguf, folder / "copy.gguf")
    stored_bundle(resolve(str(copy), folder / "models"), folder / "cache")
    return folder / "cache"


@pytest.fixture
def stocked(pristine_cache: Path, cache: Path) -> None:
    """``cache`` holds the bundle of ``source``."""
    shutil.copytree(pristine_cache, cache)


def engines(cache: Path) -> Store:
    return Store(cache / "engines", ())


def key_of(source: ModelSource) -> EngineKey:
    return NativeBuilder().key(BuildRequest(source))


@contextmanager
def held_lock(cache: Path, name: str) -> Iterator[None]:
    (cache / "engines").mkdir(parents=True, exist_ok=True)
    descriptor = os.open(cache / "engines" / f".{name}.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def visible(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "engines").iterdir() if not path.name.endswith(".lock"))


def rewrite_manifest(bundle: Bundle, **fields: object) -> None:
    path = bundle.directory / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


# Building once


def test_a_bundle_is_built_once_and_found_again(source: ModelSource, cache: Path) -> None:
    seen: list[Progress] = []
    built = stored_bundle(source, cache, on_progress=seen.append)
    assert built.directory.parent == cache / "engines"
    assert built.directory.name.startswith("copy-")
    assert visible(cache) == [built.directory.name]
    stages = list(dict.fromkeys(progress.stage for progress in seen))
    ends = {progress.stage: progress.fraction for progress in seen if progress.total_bytes}
    assert ends.keys() == {"copy", "hash"}
    assert set(ends.values()) == {1.0}
    assert stages[-3:] == ["validate", "hash", "publish"]
    seen.clear()
    assert stored_bundle(source, cache, on_progress=seen.append) == built
    assert seen == []


@pytest.mark.usefixtures("stocked")
def test_the_manifest_says_what_was_built_from_what_and_names_no_path(source: ModelSource, cache: Path) -> None:
    bundle = stored_bundle(source, cache)
    path = bundle.directory / "manifest.json"
    manifest = Manifest.read(path)
    assert manifest.key == key_of(source)
    assert manifest.key.inputs["checkpoint"] == bundle.checkpoint_digest
    assert manifest.key.inputs["profile.quantisation"] == "as-is"
    assert (manifest.builder, manifest.components, manifest.model_id) == ("native", ("llm",), "copy")
    assert set(manifest.files) == {entry.name for entry in bundle.directory.iterdir()} - {"manifest.json"}
    for file in bundle.directory.iterdir():
        if file.suffix == ".json":
            assert str(source.path.parent) not in file.read_text()


@pytest.mark.usefixtures("stocked")
def test_the_model_file_is_an_independent_copy(source: ModelSource, cache: Path) -> None:
    bundle = stored_bundle(source, cache)
    assert bundle.model_file.read_bytes() == source.path.read_bytes()
    assert not bundle.model_file.is_symlink()
    assert bundle.model_file.stat().st_ino != source.path.stat().st_ino
    source.path.write_bytes(b"changed by its owner")
    assert Bundle.load(bundle.directory) == bundle


@pytest.mark.usefixtures("stocked")
def test_the_same_checkpoint_elsewhere_and_under_another_name_is_one_bundle(
    source: ModelSource, cache: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere" / "renamed.gguf"
    elsewhere.parent.mkdir()
    shutil.copy(source.path, elsewhere)
    first = stored_bundle(source, cache)
    os.utime(source.path, (0, 0))
    assert stored_bundle(source, cache) == first
    assert stored_bundle(resolve(str(elsewhere), tmp_path / "models"), cache) == first


@pytest.mark.usefixtures("stocked")
def test_a_changed_weight_is_another_bundle(source: ModelSource, cache: Path) -> None:
    first = stored_bundle(source, cache)
    content = bytearray(source.path.read_bytes())
    content[-1] ^= 1
    source.path.write_bytes(content)
    assert stored_bundle(source, cache).directory != first.directory


def test_quantisation_and_lowering_version_are_keyed(pristine_checkpoint: Path, cache: Path, tmp_path: Path) -> None:
    source = resolve(str(pristine_checkpoint), tmp_path / "models")
    auto = stored_bundle(source, cache)
    assert stored_bundle(source, cache, "q8_0") == auto
    assert stored_bundle(source, cache, "f16").directory != auto.directory
    request = BuildRequest(source)
    upgraded = NativeBuilder(PlatformFingerprint.native(lowering_version=10_000))
    assert engines(cache).find(NativeBuilder().key(request)) is not None
    assert engines(cache).find(upgraded.key(request)) is None
    with pytest.raises(EngineMissingError, match=r"differs in platform\.lowering_version: 10000 here, 1 there"):
        engines(cache).prepare(upgraded, request, allow_build=False)


def test_lengths_and_batch_share_one_bundle(source: ModelSource) -> None:
    long = BuildProfile(max_input_len=100, max_batch_size=8, max_kv_cache_capacity=200)
    assert NativeBuilder().key(BuildRequest(source, long)) == key_of(source)


def test_an_unknown_quantisation_is_refused() -> None:
    with pytest.raises(ConfigError, match="quantisation 'q9' is not one of auto, f32"):
        BuildProfile(quantisation="q9")


def test_a_gguf_file_is_not_quantised_again(source: ModelSource, cache: Path) -> None:
    with pytest.raises(ConfigError, match="served as they are — leave quantisation at auto"):
        stored_bundle(source, cache, "q8_0")


def test_an_engine_that_came_without_its_file_is_found_and_no_other_is_built(
    source: ModelSource, cache: Path, stocked: None
) -> None:
    digest = key_of(source).checkpoint_digest
    assert has_engine_of_gguf(engines(cache), digest)
    assert not has_engine_of_gguf(engines(cache), "0" * 64)
    source.path.unlink()
    absent = replace(source, digest=digest)
    with lease_of(absent, cache) as lease:
        assert lease.manifest.key.checkpoint_digest == digest
    with pytest.raises(ModelSourceError, match=r"came without its checkpoint, .* run: edgellm models add copy"):
        lease_of(absent, cache / "empty")


def test_a_build_that_is_not_allowed_says_what_is_missing_and_how_to_get_it(source: ModelSource, cache: Path) -> None:
    with pytest.raises(
        EngineMissingError, match=rf"^copy: no engine .* in {cache}/engines.* — run edgellm engine build"
    ):
        engines(cache).prepare(NativeBuilder(), BuildRequest(source), allow_build=False)
    stored_bundle(source, cache)
    engines(cache).prepare(NativeBuilder(), BuildRequest(source), allow_build=False).close()


@pytest.mark.usefixtures("stocked")
def test_a_forced_build_replaces_what_is_there(source: ModelSource, cache: Path) -> None:
    bundle = stored_bundle(source, cache)
    inode = bundle.model_file.stat().st_ino
    with engines(cache).prepare(NativeBuilder(), BuildRequest(source), force=True) as lease:
        assert lease.directory == bundle.directory
    assert bundle.model_file.stat().st_ino != inode
    assert visible(cache) == [bundle.directory.name]


def test_a_model_id_that_is_no_file_name_is_kept_in_the_bundle_only(source: ModelSource, cache: Path) -> None:
    bundle = stored_bundle(ModelSource(SourceKind.GGUF, source.path, "../é weird\n/" + "x" * 2000), cache)
    assert bundle.model_id.startswith("../é weird\n/")
    assert bundle.directory.parent == cache / "engines"
    assert len(bundle.directory.name) < 120
    assert Manifest.read(bundle.directory / "manifest.json").model_id.startswith("../é weird?/xxx")


def test_a_checkpoint_that_changes_during_the_build_is_refused(
    checkpoint_copy: Path, cache: Path, tmp_path: Path
) -> None:
    source = resolve(str(checkpoint_copy), tmp_path / "models")

    def change(progress: Progress) -> None:
        if progress.stage == "validate":
            (checkpoint_copy / "generation_config.json").write_text("{}")

    with pytest.raises(CheckpointError, match="changed while the engine was built"):
        stored_bundle(source, cache, on_progress=change)
    assert visible(cache) == []


# Damage


@pytest.mark.usefixtures("stocked")
@pytest.mark.parametrize("name", ["config.json", "llm.gguf", "tokenizer.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["empty", "gone", "flipped"])
def test_a_damaged_bundle_is_told_and_built_again(
    source: ModelSource, cache: Path, name: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = stored_bundle(source, cache)
    path = bundle.directory / name
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        path.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    assert stored_bundle(source, cache) == bundle
    if name != "manifest.json":
        assert path.read_bytes() == whole
    if not (name == "manifest.json" and damage == "gone"):
        assert str(path) in caplog.text
    assert visible(cache) == [bundle.directory.name]


@pytest.mark.usefixtures("stocked")
@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
def test_a_manifest_that_is_no_file_is_damage_and_waits_for_nobody(
    source: ModelSource, cache: Path, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = stored_bundle(source, cache)
    path = bundle.directory / "manifest.json"

    def damage() -> None:
        path.rename(tmp_path / "manifest.json")
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            path.symlink_to(tmp_path / "manifest.json")

    damage()
    (entry,) = engines(cache).entries()
    assert entry.manifest is None
    assert entry.problem == f"{path}: not a regular file: the bundle is damaged"
    assert engines(cache).find(key_of(source)) is None
    assert stored_bundle(source, cache) == bundle
    assert entry.problem in caplog.text
    damage()
    assert [gone.name for gone in engines(cache).clear().removed] == [entry.name]
    assert visible(cache) == []


@pytest.mark.usefixtures("stocked")
def test_a_bundle_named_for_another_key_is_no_hit(source: ModelSource, cache: Path) -> None:
    bundle = stored_bundle(source, cache)
    other = bundle.directory.with_name(f"copy-{'0' * 16}")
    bundle.directory.rename(other)
    assert engines(cache).find(key_of(source)) is None
    assert stored_bundle(source, cache).directory == bundle.directory


@pytest.mark.usefixtures("stocked")
def test_a_newer_manifest_is_refused_by_name_and_left_alone(source: ModelSource, cache: Path) -> None:
    bundle = stored_bundle(source, cache)
    rewrite_manifest(bundle, schema_version=2)
    with pytest.raises(ManifestVersionError, match=rf"{bundle.directory}/manifest.json: schema_version is 2, .*newer"):
        stored_bundle(source, cache)
    (entry,) = engines(cache).entries()
    assert entry.manifest is None
    assert "schema_version" in (entry.problem or "")
    assert engines(cache).remove([entry]).removed == [entry]
    assert stored_bundle(source, cache) == bundle


@pytest.mark.usefixtures("stocked")
@pytest.mark.parametrize("name", ["llm.gguf", "tokenizer.json"])
def test_verify_names_the_file_with_a_flipped_byte(source: ModelSource, cache: Path, name: str) -> None:
    bundle = stored_bundle(source, cache)
    (entry,) = engines(cache).entries()
    seen: list[Progress] = []
    assert engines(cache).verify(entry, seen.append) == []
    assert [seen[0].fraction, seen[-1].fraction] == [0.0, 1.0]
    path = bundle.directory / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)
    (problem,) = engines(cache).verify(entry)
    assert problem.startswith(f"{path}: its SHA-256 is not that of its manifest")


@pytest.mark.usefixtures("stocked")
def test_what_a_load_derives_counts_as_the_bundle_s_size_and_is_no_part_of_its_manifest(
    source: ModelSource, cache: Path
) -> None:
    bundle = stored_bundle(source, cache)
    (before,) = engines(cache).entries()
    derived = bundle.directory / "derived" / "weight_panels" / "llm.panels"
    derived.parent.mkdir(parents=True)
    derived.write_bytes(bytes(5000))
    (after,) = engines(cache).entries()
    assert after.size_bytes == before.size_bytes + 5000
    assert engines(cache).verify(after) == []
    assert stored_bundle(source, cache) == bundle
    engines(cache).clear()
    assert visible(cache) == []


@pytest.mark.usefixtures("stocked")
def test_verify_names_what_is_missing_and_what_does_not_belong(source: ModelSource, cache: Path) -> None:
    bundle = stored_bundle(source, cache)
    (entry,) = engines(cache).entries()
    (bundle.directory / "tokenizer.json").unlink()
    (bundle.directory / "extra.bin").write_bytes(b"x")
    missing, extra = engines(cache).verify(entry)
    assert missing.startswith(f"{bundle.directory}/tokenizer.json: No such file")
    assert extra == f"{bundle.directory}/extra.bin: not part of the bundle"


@pytest.mark.usefixtures("stocked")
def test_a_link_in_place_of_a_file_is_damage(source: ModelSource, cache: Path, tmp_path: Path) -> None:
    bundle = stored_bundle(source, cache)
    path = bundle.directory / "tokenizer.json"
    path.rename(tmp_path / "moved.json")
    path.symlink_to(tmp_path / "moved.json")
    (entry,) = engines(cache).entries()
    assert any("not a regular file" in problem for problem in engines(cache).verify(entry))
    assert stored_bundle(source, cache) == bundle
    assert not path.is_symlink()


def test_a_linked_folder_inside_a_bundle_is_damage(tmp_path: Path) -> None:
    """What a manifest vouches for lies in the bundle, whatever it links to has the right bytes."""
    outside, bundle = tmp_path / "outside", tmp_path / "bundle"
    for folder in (outside, bundle / "visual"):
        folder.mkdir(parents=True)
        (folder / "visual.engine").write_bytes(b"engine")
    manifest = Manifest(
        EngineKey({"runtime": "tensorrt", "checkpoint": "c"}),
        "m",
        "2026-01-02T03:04:05Z",
        "tensorrt",
        ("visual",),
        record_files(bundle),
    )
    check_at_load(bundle, manifest)
    shutil.rmtree(bundle / "visual")
    (bundle / "visual").symlink_to(outside)
    with pytest.raises(BundleDamagedError, match=f"{bundle}/visual: not a folder of the bundle"):
        check_at_load(bundle, manifest)


# What others left behind


@pytest.mark.usefixtures("stocked")
def test_leftovers_of_killed_builds_are_removed_at_a_hit_too_and_running_ones_kept(
    source: ModelSource, cache: Path
) -> None:
    bundle = stored_bundle(source, cache)
    dead, busy = f".staging-{'1' * 16}-aaaa", f".staging-{'2' * 16}-bbbb"
    for name in (dead, busy):
        (cache / "engines" / name).mkdir()
        (cache / "engines" / name / "llm.gguf").write_bytes(b"x")
    with held_lock(cache, "2" * 16):
        stored_bundle(source, cache)
        assert visible(cache) == [busy, bundle.directory.name]
    stored_bundle(source, cache)
    assert visible(cache) == [bundle.directory.name]


def test_bundles_and_staging_of_the_first_layout_are_a_miss_and_go(source: ModelSource, cache: Path) -> None:
    old = cache / "engines" / f"copy-{'3' * 16}"
    old.mkdir(parents=True)
    for name in ("config.json", "llm.gguf", "tokenizer.json"):
        (old / name).write_text("{}")
    (cache / "engines" / f".{old.name}.lock").touch()
    (cache / "engines" / f".staging-{old.name}-abcd").mkdir()
    mine = cache / "engines" / "notes"
    mine.mkdir()
    assert engines(cache).entries() == []
    bundle = stored_bundle(source, cache)
    assert visible(cache) == [bundle.directory.name, mine.name]
    assert not (cache / "engines" / f".{old.name}.lock").exists()


def test_a_first_layout_bundle_of_the_very_name_is_replaced(source: ModelSource, cache: Path) -> None:
    old = cache / "engines" / f"copy-{key_of(source).short}"
    old.mkdir(parents=True)
    (old / "config.json").write_text("{}")
    assert stored_bundle(source, cache).directory == old


def test_a_failing_build_leaves_nothing(source: ModelSource, cache: Path) -> None:
    def fail(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stored_bundle(source, cache, on_progress=fail)
    assert visible(cache) == []


def test_waiting_is_told(source: ModelSource, cache: Path) -> None:
    lock = held_lock(cache, key_of(source).short)
    lock.__enter__()
    seen: list[Progress] = []

    def on_progress(progress: Progress) -> None:
        if not seen:
            lock.__exit__(None, None, None)
        seen.append(progress)

    stored_bundle(source, cache, on_progress=on_progress)
    assert (seen[0].stage, seen[-1].stage) == ("wait", "publish")


@pytest.mark.usefixtures("stocked")
def test_a_hit_needs_no_build_lock(source: ModelSource, cache: Path) -> None:
    bundle = stored_bundle(source, cache)
    with held_lock(cache, key_of(source).short):
        assert stored_bundle(source, cache) == bundle


def test_a_source_that_vanished_is_refused(source: ModelSource, cache: Path) -> None:
    source.path.unlink()
    with pytest.raises(ModelSourceError, match="No such file"):
        stored_bundle(source, cache)


# Roots


@pytest.mark.usefixtures("stocked")
def test_a_read_only_root_is_found_first_and_used_in_place(
    source: ModelSource, cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    baked = tmp_path / "baked"
    shutil.copytree(stored_bundle(source, cache).directory.parent, baked)
    both = Store(cache / "engines", [tmp_path / "absent", baked])
    with both.prepare(NativeBuilder(), BuildRequest(source)) as lease:
        assert lease.directory.parent == baked
        assert lease.read_only
    assert [entry.root for entry in both.entries()] == [baked, cache / "engines"]
    (entry,) = [entry for entry in both.entries() if entry.read_only]
    with pytest.raises(CacheError, match="read-only root, which edgellm never changes"):
        both.remove([entry])
    (lease.directory / "config.json").write_text("{}")
    with both.prepare(NativeBuilder(), BuildRequest(source)) as lease:
        assert lease.directory.parent == cache / "engines"
    assert f"{baked}" in caplog.text


@pytest.mark.usefixtures("stocked")
@pytest.mark.parametrize("read_only", [False, True])
def test_only_the_writable_root_is_locked(source: ModelSource, cache: Path, tmp_path: Path, read_only: bool) -> None:
    root = cache / "engines"
    of_both = Store(tmp_path / "writable", [root]) if read_only else engines(cache)
    first = of_both.lease(key_of(source))
    assert first is not None
    second = hold_bundle(first.directory, read_only=read_only)
    assert second is not None
    assert second.read_only == read_only
    for lease in (first, second):
        with (lease.directory / "manifest.json").open("rb") as manifest:
            assert lock_open_file(manifest.fileno(), fcntl.LOCK_EX) == read_only
        lease.close()


def test_a_symlinked_cache_is_used_through_its_link(source: ModelSource, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    bundle = stored_bundle(source, tmp_path / "link")
    assert visible(tmp_path / "disk") == [bundle.directory.name]
    assert stored_bundle(source, tmp_path / "link") == bundle
    assert engines(tmp_path / "link").clear().freed_bytes > 0
    assert visible(tmp_path / "disk") == []


@pytest.mark.usefixtures("stocked")
def test_a_link_among_bundles_is_neither_used_nor_followed(source: ModelSource, cache: Path, tmp_path: Path) -> None:
    bundle = stored_bundle(source, cache)
    elsewhere = tmp_path / "elsewhere"
    bundle.directory.rename(elsewhere)
    bundle.directory.symlink_to(elsewhere)
    assert engines(cache).entries() == []
    engines(cache).clear()
    assert (elsewhere / "llm.gguf").exists()
    assert stored_bundle(source, cache).directory == bundle.directory
    assert not bundle.directory.is_symlink()
    assert (elsewhere / "llm.gguf").exists()


MOUNTS = """\
22 27 0:21 / /proc rw - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 27 0:40 / /srv/with\\040space rw - nfs4 server:/export rw
31 27 0:41 / /srv/with\\040space/local rw - xfs /dev/vdb rw
32 27 0:42 / /over rw - nfs4 a:/b rw
33 27 0:43 / /over rw - tmpfs tmpfs rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/user", "ext4"),
        ("/srv/with space/cache", "nfs4"),
        ("/srv/with space/local/cache", "xfs"),
        ("/srv/with spaces", "ext4"),
        ("/over/cache", "tmpfs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_nearest_mount(path: str, kind: str) -> None:
    assert file_system.file_system_type(Path(path), MOUNTS) == kind


def test_a_network_file_system_is_refused(
    source: ModelSource, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(file_system, "MOUNTS_FILE", mounts)
    mounts.write_text(f"27 1 254:0 / / rw - ext4 /dev/vda rw\n28 27 0:9 / {tmp_path} rw - cifs //server/share rw\n")
    with pytest.raises(CacheError, match=r"on a network file system \(cifs\), where locks do not hold.*EDGELLM_CACHE"):
        stored_bundle(source, cache)
    assert not cache.exists()
    mounts.write_text("27 1 254:0 / / rw - ext4 /dev/vda rw\n")
    stored_bundle(source, cache)


def test_a_read_only_cache_is_named(source: ModelSource) -> None:
    # A file system where nobody may make folders, not even root.
    with pytest.raises(CacheError, match=r"^/sys/edgellm/engines: the cache cannot be written .*EDGELLM_CACHE_DIR"):
        stored_bundle(source, Path("/sys/edgellm"))


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EROFS, "cannot be written"),
        (errno.EACCES, "cannot be written"),
        (errno.ENOSPC, "no space left"),
        (errno.EFBIG, "a file of this size is not allowed"),
        (errno.EIO, "Input/output error — check the disk or set EDGELLM_CACHE_DIR to"),
        (errno.ENOENT, "no folder can be there .* — set EDGELLM_CACHE_DIR to one"),
        (errno.ENOTDIR, "no folder can be there .* — set EDGELLM_CACHE_DIR to one"),
    ],
)
def test_what_the_file_system_refuses_is_said_with_the_remedy(
    source: ModelSource, cache: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(store_staging.tempfile, "mkdtemp", refuse)
    with pytest.raises(CacheError, match=f"{cache}/engines: .*{reason}"):
        stored_bundle(source, cache)


# Room


def test_too_little_space_is_refused_with_numbers(
    source: ModelSource, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SPARE_DISK_BYTES", 1 << 60)
    with pytest.raises(CacheError, match=r"needs \d+ MiB, \d+ MiB are free"):
        stored_bundle(source, cache)
    assert visible(cache) == []


def test_an_engine_larger_than_the_cap_is_refused_with_the_setting(source: ModelSource, cache: Path) -> None:
    with pytest.raises(CacheError, match=r"needs 1 MiB, the cache may hold 0 MiB — raise engine_cache_max_size_gb"):
        lease_of(source, cache, max_size_bytes=1000)


@pytest.fixture(scope="session")
def pristine_three(pristine_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("three")
    source = resolve(str(pristine_checkpoint), folder / "models")
    names = {name: stored_bundle(source, folder / "cache", name).directory.name for name in ("q8_0", "f16", "q4_0")}
    return folder / "cache", names


@pytest.fixture
def three(pristine_three: tuple[Path, dict[str, str]], cache: Path) -> dict[str, Path]:
    """Three bundles, used in this order."""
    built, names = pristine_three
    shutil.copytree(built, cache)
    return {quantisation: cache / "engines" / name for quantisation, name in names.items()}


def left(three: dict[str, Path]) -> list[str]:
    return [name for name, directory in three.items() if directory.exists()]


def entry_of(cache: Path, directory: Path) -> store.Entry:
    return next(entry for entry in engines(cache).entries() if entry.directory == directory)


def test_the_least_recently_used_goes_first(three: dict[str, Path], cache: Path, pristine_checkpoint: Path) -> None:
    source = resolve(str(pristine_checkpoint), cache)
    stored_bundle(source, cache, "q8_0")
    assert engines(cache).prune(entry_of(cache, three["q8_0"]).size_bytes).freed_bytes > 0
    assert left(three) == ["q8_0"]


def test_building_beyond_the_cap_evicts(three: dict[str, Path], cache: Path, pristine_checkpoint: Path) -> None:
    total_bytes = sum(entry.size_bytes for entry in engines(cache).entries())
    source = resolve(str(pristine_checkpoint), cache)
    lease = lease_of(source, cache, "q4_1", max_size_bytes=total_bytes)
    assert lease.directory.exists()
    assert left(three) == ["f16", "q4_0"]
    lease.close()


def test_pinned_and_loaded_bundles_stay(three: dict[str, Path], cache: Path, pristine_checkpoint: Path) -> None:
    both = engines(cache)
    both.pin(entry_of(cache, three["q8_0"]))
    with lease_of(resolve(str(pristine_checkpoint), cache), cache, "f16"):
        result = both.prune(0)
        assert left(three) == ["q8_0", "f16"]
        assert result.kept == {three["q8_0"].name: "pinned", three["f16"].name: "loaded by a running process"}
        assert both.clear().kept == {three["f16"].name: "loaded by a running process"}
        assert left(three) == ["f16"]
    assert len(both.prune(0).removed) == 1
    assert left(three) == []


def test_an_unpinned_bundle_can_go_again(three: dict[str, Path], cache: Path) -> None:
    entry = entry_of(cache, three["q8_0"])
    engines(cache).pin(entry)
    assert entry_of(cache, three["q8_0"]).pinned
    engines(cache).unpin(entry)
    engines(cache).prune(0)
    assert left(three) == []


def test_a_bundle_that_is_being_replaced_is_not_evicted(three: dict[str, Path], cache: Path) -> None:
    with held_lock(cache, entry_of(cache, three["f16"]).short_key):
        assert engines(cache).prune(0).kept == {three["f16"].name: "being built or removed by another process"}
    assert left(three) == ["f16"]


def test_a_clock_set_back_does_not_change_the_order(
    three: dict[str, Path], cache: Path, pristine_checkpoint: Path
) -> None:
    """The clock was in the year 2100 for a while, and is right again."""
    future_seconds = 4_102_444_800
    for seconds, directory in enumerate(three.values(), start=future_seconds):
        os.utime(directory / "manifest.json", (seconds, seconds))
    source = resolve(str(pristine_checkpoint), cache)
    stored_bundle(source, cache, "q8_0")
    engines(cache).prune(entry_of(cache, three["q8_0"]).size_bytes)
    assert left(three) == ["q8_0"]


def test_room_that_cannot_be_made_is_told(
    three: dict[str, Path], cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for directory in three.values():
        engines(cache).pin(entry_of(cache, directory))
    Store(cache / "engines", (), max_size_bytes=1 << 20).enforce_size(1 << 20)
    assert "over engine_cache_max_size_gb, and nothing more can go" in caplog.text
    assert f"{three['f16'].name} is pinned" in caplog.text


# The nearest


def test_the_nearest_entry_and_its_differences(three: dict[str, Path], cache: Path, pristine_checkpoint: Path) -> None:
    source = resolve(str(pristine_checkpoint), cache)
    key = NativeBuilder().key(BuildRequest(source, BuildProfile(quantisation="q4_1")))
    near = engines(cache).nearest(key)
    assert near is not None
    (difference,) = near.differences
    assert (difference.name, difference.ours) == ("profile.quantisation", "q4_1")
    assert Store(cache / "nothing", ()).nearest(key) is None


def test_a_cache_that_cannot_be_listed_is_no_crash(source: ModelSource, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(CacheError, match=r"Not a directory|File exists"):
        stored_bundle(source, tmp_path / "file")
