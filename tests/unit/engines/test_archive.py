from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard
from tests.models.archives import Members, changed, member, members_of, write_archive

from edgellm.engines.archive.export import export_bundle
from edgellm.engines.archive.signing import make_key, read_private_key, read_trusted_keys
from edgellm.engines.archive.unpacking import Imported, import_archive
from edgellm.engines.build_profile import BuildProfile, RuntimeKind
from edgellm.engines.builder import BuildOutput, BuildRequest
from edgellm.engines.checkpoint_digest import checkpoint_digest
from edgellm.engines.engine_key import EngineKey
from edgellm.engines.fingerprint import PlatformFingerprint
from edgellm.engines.hub.hub_id import HubId
from edgellm.engines.native_builder import NativeBuilder
from edgellm.engines.progress import ProgressCallback
from edgellm.engines.references import Reference, all_references, find_reference
from edgellm.engines.resources.estimate import Estimate, Part
from edgellm.engines.source import SourceKind, resolve
from edgellm.engines.store import Store
from edgellm.errors import (
    BundleDamagedError,
    BundleMismatchError,
    CacheError,
    ConfigError,
    EngineUntrustedError,
    ManifestVersionError,
    ModelSourceError,
)

DEADLINE_SECONDS = 60
ORIN = {
    "wheel_version": "0.11.0",
    "payload_id": "jetson-orin-jp72-cu13-sm87",
    "tensorrt_version": "10.16.0.72",
    "cuda_runtime": "libcudart.so.13",
    "sm": 87,
    "l4t": "R39.2",
}
THOR = {**ORIN, "payload_id": "jetson-thor-jp72-cu13-sm110", "sm": 110}


class StandInBuilder:
    """Makes the layout of a text engine, which reads its weights from the checkpoint, in place of NVIDIA's builder."""

    def __init__(self, platform: Mapping[str, Any]) -> None:
        self._fingerprint = PlatformFingerprint.tensorrt(**platform)

    @property
    def name(self) -> RuntimeKind:
        return "tensorrt"

    @property
    def fingerprint(self) -> PlatformFingerprint:
        return self._fingerprint

    def key(self, request: BuildRequest) -> EngineKey:
        draft = None if request.draft is None else checkpoint_digest(request.draft.path)
        return EngineKey.of(self._fingerprint, request.profile, checkpoint_digest(request.source.path), draft)

    def plan(self, request: BuildRequest) -> StandInBuilder:
        return self

    @property
    def estimate(self) -> Estimate:
        return Estimate("builder", disk=(Part("engines", 1 << 20, "made up"),))

    def build(self, staging: Path, on_progress: ProgressCallback, *, locks: Sequence[int] = ()) -> BuildOutput:
        (staging / "visual").mkdir()
        (staging / "llm.engine").write_bytes(bytes(range(256)) * 300)
        (staging / "visual" / "visual.engine").write_bytes(b"visual" * 100)
        (staging / "config.json").write_text("{}")
        return BuildOutput(("llm", "visual"), needs_checkpoint=True)

    def validate(self, directory: Path) -> None:
        if not (directory / "llm.engine").is_file():
            raise BundleDamagedError(f"{directory}: no llm.engine")


class Board:
    """A machine with a cache of its own."""

    def __init__(self, folder: Path, builder: NativeBuilder | StandInBuilder | None = None) -> None:
        self.folder = folder
        self.models = folder / "models"
        self.store = Store(folder / "engines", (), models=self.models)
        self.builder = builder or NativeBuilder()

    def build(self, model: Path, draft: Path | None = None, **profile: Any) -> None:
        self.request = BuildRequest(
            resolve(str(model), self.models, download=False),
            BuildProfile(**profile),
            None if draft is None else resolve(str(draft), self.models, download=False),
        )
        self.store.prepare(self.builder, self.request).close()

    def export(self, target: Path, **options: Any) -> Path:
        lease = self.store.lease(self.builder.key(self.request))
        assert lease is not None
        paths = {"checkpoint": self.request.source.path}
        if self.request.draft is not None:
            paths["draft"] = self.request.draft.path
        with lease:
            export_bundle(lease, target, checkpoints=paths, **options)
        return target

    def take(self, archive: Path, **options: Any) -> Imported:
        return import_archive(archive, self.store, self.models, {self.builder.name: self.builder}, **options)

    def is_empty(self) -> bool:
        """Nothing of an archive is left: no bundle, no staging, no checkpoint, no reference."""
        left = [path for path in self.folder.rglob("*") if path.is_file()]
        return left in ([], [self.models / "checkpoints" / ".lock"])


@pytest.fixture(scope="session")
def native(pristine_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of a bundle that is whole in itself. Read only."""
    board = Board(tmp_path_factory.mktemp("native-board"))
    board.build(pristine_checkpoint)
    return board.export(board.folder / "native.tar.zst", references=[_reference(pristine_checkpoint)])


@pytest.fixture(scope="session")
def orin(pristine_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of a bundle with its checkpoint. Read only."""
    board = Board(tmp_path_factory.mktemp("orin-board"), StandInBuilder(ORIN))
    board.build(pristine_checkpoint)
    return board.export(board.folder / "orin.tar.zst", references=[_reference(pristine_checkpoint)])


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path / "board")


@pytest.fixture
def jetson(tmp_path: Path) -> Board:
    return Board(tmp_path / "jetson", StandInBuilder(ORIN))


def _reference(checkpoint: Path) -> Reference:
    return Reference(HubId("Org/Tiny"), "a" * 40, "safetensors", "", checkpoint_digest(checkpoint))


def damage(archive: Path, board: Board, error: type[Exception] = BundleDamagedError, **options: Any) -> str:
    """The refusal, after which nothing is left."""
    with pytest.raises(error) as caught:
        board.take(archive, **options)
    assert type(caught.value) is error
    assert board.is_empty()
    return str(caught.value)


def test_an_engine_moves_to_another_board_and_is_found_there(
    native: Path, board: Board, pristine_checkpoint: Path
) -> None:
    imported = board.take(native)
    assert not imported.was_there
    request = BuildRequest(resolve(str(pristine_checkpoint), board.models, download=False))
    lease = board.store.prepare(board.builder, request, allow_build=False)
    with lease:
        assert lease.directory == imported.directory
        assert board.store.verify(board.store.entries()[0]) == []
        assert lease.manifest == imported.manifest


def test_an_id_is_resolved_without_hub_or_checkpoint(native: Path, board: Board) -> None:
    board.take(native)
    source = resolve("Org/Tiny", board.models, download=False)
    assert not source.path.exists()
    with board.store.prepare(board.builder, BuildRequest(source), allow_build=False) as lease:
        assert lease.manifest.files


def test_a_bundle_that_reads_weights_brings_its_checkpoint(
    orin: Path, jetson: Board, pristine_checkpoint: Path
) -> None:
    jetson.take(orin)
    source = resolve("Org/Tiny", jetson.models, download=False)
    assert source.kind is SourceKind.SAFETENSORS
    assert source.path.is_relative_to(jetson.models / "checkpoints")
    assert checkpoint_digest(source.path) == checkpoint_digest(pristine_checkpoint)
    lease = jetson.store.prepare(jetson.builder, BuildRequest(source), allow_build=False)
    with lease:
        assert set(lease.manifest.files) == {"config.json", "llm.engine", "visual/visual.engine"}


@pytest.mark.parametrize("remove", ["clear", "prune", "evict"])
def test_a_checkpoint_goes_with_the_last_engine_that_was_built_from_it(orin: Path, jetson: Board, remove: str) -> None:
    directory = jetson.take(orin).directory
    (checkpoint,) = (jetson.models / "checkpoints").glob("[!.]*")
    jetson.store.prune()
    assert checkpoint.is_dir()  # its engine is there
    if remove == "clear":
        result = jetson.store.clear()
    elif remove == "prune":
        result = jetson.store.prune(0)
    else:
        jetson.store.enforce_size(jetson.store.max_size_bytes)
    assert not directory.exists()
    assert not checkpoint.exists()
    if remove != "evict":
        assert list(result.removed_checkpoints) == [checkpoint.name]
        assert result.removed_checkpoints[checkpoint.name] > 0
    with pytest.raises(ModelSourceError, match="edgellm models add"):  # the id means nothing here any more
        resolve("Org/Tiny", jetson.models, download=False)
    jetson.take(orin)
    assert checkpoint.is_dir()


def test_a_checkpoint_stays_while_an_engine_of_it_is_held_or_cannot_be_read(
    orin: Path, jetson: Board, tmp_path: Path
) -> None:
    imported = jetson.take(orin)
    digest = imported.manifest.key.checkpoint_digest
    lease = jetson.store.lease(imported.manifest.key)
    assert lease is not None
    with lease:
        assert jetson.store.clear().removed_checkpoints == {}
    jetson.store.pin(jetson.store.entries()[0])
    assert jetson.store.prune(0).removed_checkpoints == {}
    other = jetson.folder / "engines" / f"other-{'0' * 16}"
    other.mkdir()
    (other / "manifest.json").write_text("{")
    jetson.store.remove([entry for entry in jetson.store.entries() if entry.directory == imported.directory])
    assert (jetson.models / "checkpoints" / digest).is_dir()
    jetson.store.clear()
    assert not (jetson.models / "checkpoints" / digest).exists()


def test_a_reference_without_checkpoint_goes_with_its_engine(native: Path, board: Board) -> None:
    board.take(native)
    assert resolve("Org/Tiny", board.models, download=False)
    board.store.clear()
    assert list(all_references(board.models)) == []


def test_nothing_goes_while_an_import_runs(orin: Path, jetson: Board) -> None:
    digest = jetson.take(orin).manifest.key.checkpoint_digest
    with (jetson.models / "checkpoints" / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert jetson.store.clear().removed_checkpoints == {}
    assert (jetson.models / "checkpoints" / digest).is_dir()
    assert list(jetson.store.prune().removed_checkpoints) == [digest]


def test_a_speculative_pair_brings_its_draft_too(
    jetson: Board, tmp_path: Path, pristine_checkpoint: Path, checkpoint_copy: Path
) -> None:
    (checkpoint_copy / "generation_config.json").write_text('{"top_k": 3}')
    maker = Board(tmp_path / "maker", StandInBuilder(ORIN))
    maker.build(pristine_checkpoint, checkpoint_copy, spec_type="eagle3")
    archive = maker.export(tmp_path / "pair.tar.zst")
    names = {info.name.partition("/")[0] for info, _ in members_of(archive)}
    assert names == {"manifest.json", "archive.json", "bundle", "checkpoint", "draft"}
    jetson.take(archive)
    folders = {path.name for path in (jetson.models / "checkpoints").iterdir() if path.is_dir()}
    assert folders == {checkpoint_digest(pristine_checkpoint), checkpoint_digest(checkpoint_copy)}


def test_the_same_export_gives_the_same_bytes(native: Path, board: Board, tmp_path: Path) -> None:
    """On the board that made it, and on one that took it from there."""
    board.take(native)
    lease = board.store.lease(board.store.entries()[0].manifest.key)  # type: ignore[union-attr]
    assert lease is not None
    with lease:
        for name in ("one", "two"):
            export_bundle(lease, tmp_path / name, checkpoints={}, references=all_references(board.models))
    digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (native, tmp_path / "one", tmp_path / "two")}
    assert len(digests) == 1


def test_an_archive_is_a_tar_that_others_read_with_the_manifest_first(orin: Path) -> None:
    members = members_of(orin)
    names = [info.name for info, _ in members]
    assert names[:2] == ["manifest.json", "archive.json"]
    assert names[2:5] == ["bundle/config.json", "bundle/llm.engine", "bundle/visual/visual.engine"]
    assert all(name.startswith("checkpoint/") for name in names[5:])
    assert {(info.mtime, info.uid, info.gid, info.uname, info.mode) for info, _ in members} == {(0, 0, 0, "", 0o644)}


def test_what_is_there_already_is_left_as_it_is(native: Path, board: Board) -> None:
    first = board.take(native)
    inode = first.directory.stat().st_ino
    again = board.take(native)
    assert again.was_there
    assert (again.directory, again.directory.stat().st_ino) == (first.directory, inode)


def test_a_damaged_bundle_is_replaced(native: Path, board: Board) -> None:
    first = board.take(native)
    config = first.directory / "config.json"
    config.write_text(config.read_text() + " ")
    assert not board.take(native).was_there
    assert board.store.verify(board.store.entries()[0]) == []


def test_a_checkpoint_that_went_missing_comes_back(orin: Path, jetson: Board) -> None:
    jetson.take(orin)
    source = resolve("Org/Tiny", jetson.models, download=False)
    source.path.rename(jetson.folder / "elsewhere")
    assert not jetson.take(orin).was_there
    assert source.path.is_dir()


def test_a_checkpoint_that_is_not_the_one_built_from_is_not_exported(
    tmp_path: Path, jetson: Board, checkpoint_copy: Path
) -> None:
    jetson.build(checkpoint_copy)
    lease = jetson.store.lease(jetson.builder.key(jetson.request))
    assert lease is not None
    (checkpoint_copy / "generation_config.json").write_text("{}")
    with lease:
        with pytest.raises(BundleMismatchError, match="the engine was built from"):
            export_bundle(lease, tmp_path / "x", checkpoints={"checkpoint": checkpoint_copy})
        with pytest.raises(ModelSourceError, match="name the model in place of the engine"):
            export_bundle(lease, tmp_path / "x", checkpoints={})
    assert not (tmp_path / "x").exists()


def test_a_damaged_bundle_is_not_exported(board: Board, tmp_path: Path, pristine_checkpoint: Path) -> None:
    board.build(pristine_checkpoint)
    lease = board.store.lease(board.builder.key(board.request))
    assert lease is not None
    with lease:
        flip(lease.directory / "llm.gguf")
        with pytest.raises(BundleDamagedError, match="its SHA-256 is not that of its manifest"):
            export_bundle(lease, tmp_path / "out", checkpoints={})
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []


def test_a_file_is_never_replaced_unasked(board: Board, tmp_path: Path, pristine_checkpoint: Path) -> None:
    board.build(pristine_checkpoint)
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        board.export(tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "mine"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is no plain file, and is not replaced"):
        board.export(tmp_path / "pipe", overwrite=True)
    assert (tmp_path / "pipe").is_fifo()
    board.export(tmp_path / "mine", overwrite=True)
    assert len(members_of(tmp_path / "mine")) > 3


# What is wrong with an archive


def flip(path: Path, position: int = -10) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def test_a_changed_byte_of_any_part_is_noticed(orin: Path, jetson: Board, tmp_path: Path) -> None:
    members = members_of(orin)
    for info, content in members:
        if content:
            archive = write_archive(tmp_path / "changed", changed(members, info.name, flipped))
            assert str(archive) in damage(archive, jetson)


def test_a_changed_byte_of_the_compressed_file_is_noticed(native: Path, board: Board, tmp_path: Path) -> None:
    content = native.read_bytes()
    for position in range(0, len(content), len(content) // 40):
        archive = tmp_path / "flipped"
        archive.write_bytes(content)
        flip(archive, position)
        with pytest.raises((BundleDamagedError, ManifestVersionError)):
            board.take(archive)
        assert board.is_empty()


def test_an_archive_that_is_cut_off_is_refused(orin: Path, jetson: Board, tmp_path: Path) -> None:
    content = orin.read_bytes()
    for length in (0, 1, 100, len(content) // 3, len(content) - 200, len(content) - 1):
        archive = tmp_path / "cut"
        archive.write_bytes(content[:length])
        assert "it is not whole" in damage(archive, jetson)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", b"\x28\xb5\x2f\xfd garbage", os.urandom(4096)])
def test_what_is_no_archive_is_refused(board: Board, tmp_path: Path, content: bytes) -> None:
    archive = tmp_path / "no-archive"
    archive.write_bytes(content)
    assert "not whole" in (message := damage(archive, board)) or "no engine archive" in message


def test_a_missing_file_is_refused(board: Board, tmp_path: Path) -> None:
    assert "give a file that edgellm engine export made" in damage(tmp_path / "nowhere", board, ConfigError)


@pytest.mark.parametrize("end", [b"", bytes(512), bytes(512) + b"x" * 512, bytes(1024) + b"x", bytes(1024) * 2])
def test_an_archive_ends_where_it_must(native: Path, board: Board, tmp_path: Path, end: bytes) -> None:
    archive = write_archive(tmp_path / "end", members_of(native), end)
    damage(archive, board)


def test_a_second_frame_after_the_end_is_refused(native: Path, board: Board, tmp_path: Path) -> None:
    archive = tmp_path / "two"
    archive.write_bytes(native.read_bytes() + zstandard.ZstdCompressor().compress(b"more"))
    assert "goes on after its end" in damage(archive, board)
    archive.write_bytes(native.read_bytes() + b"trailing bytes that are no frame")
    damage(archive, board)


@pytest.mark.parametrize(
    "name", ["../escaped", "/tmp/escaped", "bundle/../../escaped", "bundle/./config.json", "bundle\\escaped", "escaped"]
)
def test_a_name_that_leaves_its_folder_is_refused(native: Path, board: Board, tmp_path: Path, name: str) -> None:
    for position in (0, 1, 2, 3, 99):
        members = members_of(native)
        members.insert(position, member(name, b"escaped"))
        damage(write_archive(tmp_path / "escape", members), board)
    assert not list(tmp_path.rglob("escaped*"))
    assert not Path("/tmp/escaped").exists()


@pytest.mark.parametrize("field", ["files", "checkpoint"])
@pytest.mark.parametrize("path", ["../escaped", "/escaped", "a/../escaped", "a//b", "", ".", "a\\b", "x" * 300])
def test_a_manifest_with_a_path_that_leaves_its_folder_is_refused(
    orin: Path, jetson: Board, tmp_path: Path, field: str, path: str
) -> None:
    def with_path(values: dict[str, Any]) -> None:
        files = values["files"] if field == "files" else values["checkpoints"]["checkpoint"]["files"]
        files[path] = {"size_bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}

    name = "manifest.json" if field == "files" else "archive.json"
    members = edited(members_of(orin), name, with_path)
    folder = "bundle" if field == "files" else "checkpoint"
    members.insert(2, member(f"{folder}/{path}"[:100], b""))
    assert "is no path inside a" in damage(write_archive(tmp_path / "path", members), jetson)


@pytest.mark.parametrize(
    ("kind", "link"),
    [
        (tarfile.SYMTYPE, "/etc/passwd"),
        (tarfile.SYMTYPE, "config.json"),
        (tarfile.LNKTYPE, "/etc/passwd"),
        (tarfile.CHRTYPE, ""),
        (tarfile.BLKTYPE, ""),
        (tarfile.FIFOTYPE, ""),
        (tarfile.DIRTYPE, ""),
        (tarfile.XHDTYPE, ""),
        (tarfile.XGLTYPE, ""),
        (tarfile.GNUTYPE_LONGNAME, ""),
        (tarfile.GNUTYPE_SPARSE, ""),
        (tarfile.CONTTYPE, ""),
        (tarfile.REGTYPE, "/etc/passwd"),
    ],
)
def test_nothing_but_a_plain_file_is_taken(native: Path, board: Board, tmp_path: Path, kind: bytes, link: str) -> None:
    for position in range(5):
        members = members_of(native)
        name = members[position][0].name
        members[position] = member(name, b"" if link and kind != tarfile.REGTYPE else members[position][1], kind, link)
        assert "which is no plain file" in damage(write_archive(tmp_path / "kind", members), board)


def test_a_file_that_comes_twice_or_not_in_order_is_refused(native: Path, board: Board, tmp_path: Path) -> None:
    members = members_of(native)
    damage(write_archive(tmp_path / "a", [*members, members[-1]]), board)
    damage(write_archive(tmp_path / "b", [*members[:4], members[3], *members[4:]]), board)
    damage(write_archive(tmp_path / "c", [*members[:2], *reversed(members[2:])]), board)
    damage(write_archive(tmp_path / "d", [members[1], members[0], *members[2:]]), board)
    for position in range(len(members)):
        damage(write_archive(tmp_path / "e", members[:position] + members[position + 1 :]), board)


def test_a_bomb_is_bounded_by_its_manifest(native: Path, board: Board, tmp_path: Path) -> None:
    """A gigabyte of zeros in place of a file, a manifest, or after the end: none of it is written, or read whole."""
    members = members_of(native)
    huge = tarfile.TarInfo("bundle/chat_template.jinja")
    for position, name in ((0, "manifest.json"), (1, "archive.json"), (2, members[2][0].name)):
        huge = tarfile.TarInfo(name)
        huge.size = 1 << 40
        damage(write_archive(tmp_path / "bomb", [*members[:position], (huge, bytes(1 << 20))]), board)
    damage(write_archive(tmp_path / "bomb", members, bytes(64 << 20)), board)
    window = zstandard.ZstdCompressionParameters.from_level(3, window_log=30, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=window)
    (tmp_path / "window").write_bytes(compressor.compress(bytes(200 << 20)))
    damage(tmp_path / "window", board)


def edited(members: Members, name: str, change: Callable[[dict[str, Any]], object]) -> Members:
    """``name`` changed as JSON; where that is the manifest, its digest in archive.json is put right."""

    def edit(content: bytes) -> bytes:
        values = json.loads(content)
        change(values)
        return json.dumps(values).encode()

    members = changed(members, name, edit)
    manifest = next(content for info, content in members if info.name == "manifest.json")

    def put_right(content: bytes) -> bytes:
        values = json.loads(content)
        values["manifest_sha256"] = hashlib.sha256(manifest).hexdigest()
        return json.dumps(values).encode()

    return changed(members, "archive.json", put_right) if name == "manifest.json" else members


@pytest.mark.parametrize(
    ("name", "field", "value", "error"),
    [
        ("manifest.json", "schema_version", 2, ManifestVersionError),
        ("archive.json", "schema_version", 2, ManifestVersionError),
        ("archive.json", "schema_version", True, BundleDamagedError),
        ("archive.json", "manifest_sha256", "0" * 64, BundleDamagedError),
        ("archive.json", "manifest_sha256", 7, BundleDamagedError),
        ("archive.json", "checkpoints", {}, BundleDamagedError),
        ("archive.json", "checkpoints", {"other": {}}, BundleDamagedError),
        ("archive.json", "references", {}, BundleDamagedError),
        ("archive.json", "references", [{}], BundleDamagedError),
        ("archive.json", "more", 1, BundleDamagedError),
        ("manifest.json", "needs_checkpoint", "yes", BundleDamagedError),
    ],
)
def test_a_field_that_is_wrong_or_of_a_newer_version_is_named(
    orin: Path, jetson: Board, tmp_path: Path, name: str, field: str, value: Any, error: type[Exception]
) -> None:
    members = edited(members_of(orin), name, lambda values: values.update({field: value}))
    message = damage(write_archive(tmp_path / "field", members), jetson, error)
    assert field in message or "lacks the checkpoint" in message or "the SHA-256 of its manifest.json" in message


def test_a_checkpoint_of_another_engine_is_refused(
    orin: Path, jetson: Board, tmp_path: Path, checkpoint_copy: Path
) -> None:
    """Whole in itself, and not the one that the engine was built from."""

    def other_digest(values: dict[str, Any]) -> None:
        values["checkpoints"]["checkpoint"]["digest"] = "0" * 64

    members = edited(members_of(orin), "archive.json", other_digest)
    assert "its engine was built from" in damage(write_archive(tmp_path / "x", members), jetson)

    def other_file(values: dict[str, Any]) -> None:
        record = {"size_bytes": 2, "sha256": hashlib.sha256(b"{}").hexdigest()}
        values["checkpoints"]["checkpoint"]["files"]["zzz.json"] = record

    members = [*edited(members_of(orin), "archive.json", other_file), member("checkpoint/zzz.json", b"{}")]
    assert "the digest of its checkpoint is" in damage(write_archive(tmp_path / "x", members), jetson)


def test_a_reference_to_another_checkpoint_is_refused(native: Path, board: Board, tmp_path: Path) -> None:
    def point_elsewhere(values: dict[str, Any]) -> None:
        values["references"][0]["checkpoint_digest"] = "0" * 64

    members = edited(members_of(native), "archive.json", point_elsewhere)
    assert "is to another checkpoint" in damage(write_archive(tmp_path / "x", members), board)


def test_a_bundle_that_its_builder_refuses_is_not_published(native: Path, board: Board, tmp_path: Path) -> None:
    content = b'{"no": "bundle"}'

    def other_config(values: dict[str, Any]) -> None:
        values["files"]["config.json"] = {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    members = edited(members_of(native), "manifest.json", other_config)
    members = changed(members, "bundle/config.json", lambda _: content)
    with pytest.raises(Exception, match=r"config\.json"):
        board.take(write_archive(tmp_path / "x", members))
    assert board.is_empty()


def test_another_platform_is_refused_with_both_values(orin: Path, tmp_path: Path, board: Board) -> None:
    thor = Board(tmp_path / "thor", StandInBuilder(THOR))
    message = damage(orin, thor, BundleMismatchError)
    assert "sm is 87 there, 110 here" in message
    assert "payload_id is jetson-orin-jp72-cu13-sm87 there, jetson-thor-jp72-cu13-sm110 here" in message
    assert "l4t" not in message
    assert "for the tensorrt runtime, which this machine does not have" in damage(orin, board, BundleMismatchError)
    older = Board(tmp_path / "older", NativeBuilder(PlatformFingerprint.native(lowering_version=99)))
    older.build(resolve_source(tmp_path, orin))
    archive = older.export(tmp_path / "older.tar.zst")
    assert "lowering_version is 99 there" in damage(archive, board, BundleMismatchError)


def resolve_source(tmp_path: Path, orin: Path) -> Path:
    """The checkpoint out of an archive."""
    jetson = Board(tmp_path / "any", StandInBuilder(ORIN))
    jetson.take(orin)
    return resolve("Org/Tiny", jetson.models, download=False).path


def test_an_image_is_made_where_the_engine_does_not_run_and_used_where_it_does(orin: Path, tmp_path: Path) -> None:
    root = tmp_path / "image"
    import_archive(orin, Store(root, ()), root, {}, check_platform=False)
    builder = StandInBuilder(ORIN)
    store = Store(tmp_path / "cache" / "engines", (root,))
    source = resolve("Org/Tiny", tmp_path / "cache" / "models", roots=store.read_only, download=False)
    assert source.path.is_relative_to(root)
    with store.prepare(builder, BuildRequest(source), allow_build=False) as lease:
        assert lease.read_only
    assert find_reference(HubId("Org/Tiny"), [root]) is not None


def test_too_little_room_is_refused_before_anything_is_written(native: Path, tmp_path: Path) -> None:
    board = Board(tmp_path / "small")
    board.store = Store(board.folder / "engines", (), max_size_bytes=1000)
    assert "raise engine" in damage(native, board, CacheError)


# Signatures


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``fleet`` and ``other`` are private keys, ``trusted`` is a file that trusts the first."""
    folder = tmp_path_factory.mktemp("keys")
    line = make_key(folder / "fleet", "fleet").line()
    make_key(folder / "other", "other")
    (folder / "trusted").write_text(f"# keys of the fleet\n\n{line}\n")
    return folder


@pytest.fixture
def signed(native: Path, keys: Path, board: Board, tmp_path: Path) -> Path:
    maker = Board(tmp_path / "signer")
    maker.take(native)
    lease = maker.store.lease(maker.store.entries()[0].manifest.key)  # type: ignore[union-attr]
    assert lease is not None
    with lease:
        for name in ("fleet", "other"):
            key = read_private_key(keys / name)
            export_bundle(lease, tmp_path / f"{name}.tar.zst", checkpoints={}, key=key)
    return tmp_path


def test_a_trusted_signature_is_taken(signed: Path, keys: Path, board: Board) -> None:
    imported = board.take(signed / "fleet.tar.zst", trusted=read_trusted_keys(keys / "trusted"))
    assert imported.signer == "fleet"


def test_a_signature_is_no_hindrance_where_none_is_asked_for(signed: Path, board: Board) -> None:
    assert board.take(signed / "other.tar.zst").signer is None


def test_no_signature_is_refused_where_one_is_asked_for(native: Path, keys: Path, board: Board) -> None:
    trusted = read_trusted_keys(keys / "trusted")
    assert "not signed, and this machine takes signed archives only" in damage(
        native, board, EngineUntrustedError, trusted=trusted
    )


def test_the_signature_of_a_stranger_is_refused(signed: Path, keys: Path, board: Board) -> None:
    for trusted in (read_trusted_keys(keys / "trusted"), ()):
        message = damage(signed / "other.tar.zst", board, EngineUntrustedError, trusted=trusted)
        assert "which engines.trusted_keys_file does not hold — add it there" in message


def test_a_signature_over_something_else_is_refused(signed: Path, keys: Path, board: Board, tmp_path: Path) -> None:
    trusted = read_trusted_keys(keys / "trusted")
    members = edited(members_of(signed / "fleet.tar.zst"), "archive.json", lambda values: values.update(references=[]))
    archive = write_archive(tmp_path / "changed", members)
    if archive.read_bytes():
        assert "it was changed after it was signed" in damage(archive, board, EngineUntrustedError, trusted=trusted)


def test_a_changed_signature_is_refused(signed: Path, keys: Path, board: Board, tmp_path: Path) -> None:
    trusted = read_trusted_keys(keys / "trusted")
    members = members_of(signed / "fleet.tar.zst")

    def other(values: dict[str, Any]) -> None:
        text = values["signature"]
        values["signature"] = ("B" if text[0] == "A" else "A") + text[1:]

    damage(
        write_archive(tmp_path / "a", edited(members, "signature.json", other)),
        board,
        EngineUntrustedError,
        trusted=trusted,
    )
    for content in (b"", b"{}", b'{"algorithm": "none"}', b'{"algorithm": "ed25519", "signature": "x"}'):
        archive = write_archive(tmp_path / "b", changed(members, "signature.json", lambda _, new=content: new))  # type: ignore[misc]
        damage(archive, board, BundleDamagedError, trusted=trusted)


def test_a_private_key_is_for_its_owner_alone(keys: Path, tmp_path: Path) -> None:
    assert (keys / "fleet").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match="a key is never overwritten"):
        make_key(keys / "fleet", "fleet")
    open_key = tmp_path / "open"
    open_key.write_bytes((keys / "fleet").read_bytes())
    open_key.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_private_key(open_key)
    with pytest.raises(ConfigError, match="cannot be a key's name"):
        make_key(tmp_path / "named", "a:b")


@pytest.mark.parametrize("content", [b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_private_key_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="engine keygen"):
        read_private_key(path)


@pytest.mark.parametrize("line", ["x", "a:rsa:AAAA", "a:ed25519:AAAA", "a b:ed25519:AAAA", "a:ed25519:*"])
def test_a_wrong_line_of_trusted_keys_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trusted"
    path.write_text(f"# first\n{line}\n")
    with pytest.raises(ConfigError, match=r"trusted:2: not NAME:ed25519:BASE64"):
        read_trusted_keys(path)


# Processes


IMPORT = """
import sys; from pathlib import Path
from edgellm.engines.archive.unpacking import import_archive
from edgellm.engines.native_builder import NativeBuilder
from edgellm.engines.store import Store
folder = Path(sys.argv[2])
store = Store(folder / "engines", ())
options = {"check_platform": False} if len(sys.argv) > 3 else {}
imported = import_archive(Path(sys.argv[1]), store, folder / "models", {"native": NativeBuilder()}, **options)
print(imported.was_there)
"""


def import_process(archive: Path, board: Board, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", IMPORT, str(archive), str(board.folder), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def killed_import(archive: Path, board: Board, tmp_path: Path, share: float, has_begun: str, *options: str) -> None:
    """The archive comes through a pipe that stops in the middle, where the process is killed."""
    content = archive.read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = import_process(pipe, board, *options)
    try:
        with pipe.open("wb", buffering=0) as stream:
            stream.write(content[: int(len(content) * share)])
            wait_for(lambda: any(board.folder.glob(has_begun)), process)
            process.kill()
            process.wait(DEADLINE_SECONDS)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("share", [0.5, 0.8, 0.99])
def test_a_killed_import_leaves_nothing_that_counts_and_the_next_one_works(
    native: Path, board: Board, tmp_path: Path, share: float
) -> None:
    killed_import(native, board, tmp_path, share, "engines/.staging-*/*")
    assert board.store.entries() == []
    imported = board.take(native)
    assert not imported.was_there
    assert not list((board.folder / "engines").glob(".staging-*"))


def test_a_checkpoint_of_a_killed_import_leaves_nothing_either(orin: Path, jetson: Board, tmp_path: Path) -> None:
    killed_import(orin, jetson, tmp_path, 0.9, "models/checkpoints/.staging-*/*", "any platform")
    with pytest.raises(ModelSourceError):
        resolve("Org/Tiny", jetson.models, download=False)
    assert not jetson.take(orin).was_there
    assert resolve("Org/Tiny", jetson.models, download=False).path.is_dir()
    assert not list(jetson.folder.glob("*/.staging-*"))
    assert not list(jetson.folder.glob("models/checkpoints/.staging-*"))


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_of_several_imports_at_once_one_unpacks(native: Path, board: Board) -> None:
    processes = [import_process(native, board) for _ in range(4)]
    answers = []
    for process in processes:
        out, _ = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0
        answers.append(out.strip())
    assert sorted(answers) == ["False", "True", "True", "True"]
    assert len(board.store.entries()) == 1
