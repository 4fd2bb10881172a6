"""Import: an archive into the store, every byte compared before anything is published.

Nothing of an archive is trusted: its names are those of its manifest or it is refused, files are made anew in a staging
folder, and sizes bound what is read and written. A killed import leaves staging, which the next one removes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from edgellm.engines.archive.contents import (
    BUNDLE_FOLDER,
    CONTENTS_MEMBER,
    MANIFEST_MEMBER,
    MAX_CONTENTS_BYTES,
    SIGNATURE_MEMBER,
    ArchiveContents,
    CheckpointContents,
)
from edgellm.engines.archive.tar_stream import TarReader
from edgellm.engines.builder import Builder
from edgellm.engines.checkpoint_digest import checkpoint_digest
from edgellm.engines.file_system import cache_error, synchronise_directory, synchronise_tree
from edgellm.engines.hub.hub_model import CHECKPOINTS_FOLDER
from edgellm.engines.imported_checkpoints import LOCK_FILE, STAGING_PREFIX
from edgellm.engines.manifest import MAX_MANIFEST_BYTES, FileRecord, Manifest
from edgellm.engines.progress import Progress, ProgressCallback, ignore_progress
from edgellm.engines.references import Reference, write_reference
from edgellm.engines.resources.estimate import mib
from edgellm.engines.store import SPARE_DISK_BYTES, Store
from edgellm.engines.store_eviction import mark_used
from edgellm.errors import BundleDamagedError, BundleMismatchError, CacheError, ConfigError

if TYPE_CHECKING:
    from edgellm.engines.archive.signing import TrustedKey

MAX_SIGNATURE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Imported:
    """``was_there``: the store had the bundle and its checkpoints already. ``signer`` is a trusted key's name."""

    directory: Path
    manifest: Manifest
    references: tuple[Reference, ...]
    was_there: bool
    signer: str | None


def import_archive(
    archive: Path,
    store: Store,
    models_dir: Path,
    builders: Mapping[str, Builder],
    *,
    trusted: Sequence[TrustedKey] | None = None,
    check_platform: bool = True,
    on_progress: ProgressCallback = ignore_progress,
) -> Imported:
    """Take the engine of ``archive`` into the writable root of ``store``, checkpoints and references to ``models_dir``.

    ``builders`` are this machine's by runtime: they say what it is, and check what came. ``trusted`` None takes
    archives without a signature too. Raises BundleDamagedError, BundleMismatchError, EngineUntrustedError,
    ManifestVersionError, CacheError.
    """
    try:
        stream = archive.open("rb")
    except OSError as error:
        raise ConfigError(f"{archive}: {error.strerror} — give a file that edgellm engine export made") from None
    with stream:
        head = _read_head(TarReader(stream, str(archive)), archive, trusted)
        if check_platform:
            _refuse_other_platform(archive, head.manifest, builders)
        return _unpack(archive, head, store, models_dir, builders.get(head.manifest.builder), on_progress)


@dataclass(frozen=True, slots=True)
class _Head:
    reader: TarReader
    manifest: Manifest
    contents: ArchiveContents
    first: tuple[str, int]
    signer: str | None


def _read_head(reader: TarReader, archive: Path, trusted: Sequence[TrustedKey] | None) -> _Head:
    """Everything that comes before the files."""
    content = _named(reader, MANIFEST_MEMBER, MAX_MANIFEST_BYTES)
    manifest = Manifest.parse(content, archive / MANIFEST_MEMBER)
    listed = _named(reader, CONTENTS_MEMBER, MAX_CONTENTS_BYTES)
    contents = ArchiveContents.parse(listed, archive / CONTENTS_MEMBER)
    found_sha256 = hashlib.sha256(content).hexdigest()
    if found_sha256 != contents.manifest_sha256:
        reader.fail(
            f"the SHA-256 of its {MANIFEST_MEMBER} is {found_sha256[:16]}…, its {CONTENTS_MEMBER} says "
            f"{contents.manifest_sha256[:16]}…: it was changed"
        )
    _check_digests(reader, manifest, contents)
    name, size_bytes = reader.begin("its first file")
    signature = None
    if name == SIGNATURE_MEMBER:
        signature = reader.content(name, size_bytes, MAX_SIGNATURE_BYTES)
        name, size_bytes = reader.begin("its first file")
    signer = None
    if trusted is not None:
        from edgellm.engines.archive.signing import verify

        signer = verify(signature, listed, trusted, archive).name
    return _Head(reader, manifest, contents, (name, size_bytes), signer)


def _named(reader: TarReader, name: str, most_bytes: int) -> bytes:
    found, size_bytes = reader.begin(name)
    if found != name:
        reader.fail(f"holds {found[:200]!r} where {name} should be: it is no engine archive")
    return reader.content(name, size_bytes, most_bytes)


def _check_digests(reader: TarReader, manifest: Manifest, contents: ArchiveContents) -> None:
    wanted = {"checkpoint": manifest.key.checkpoint_digest, "draft": manifest.key.inputs.get("draft")}
    for role, checkpoint in contents.checkpoints.items():
        if checkpoint.digest != wanted[role]:
            reader.fail(f"its {role} is {checkpoint.digest[:16]}…, its engine was built from {str(wanted[role])[:16]}…")
    if manifest.needs_checkpoint:
        for role, digest in wanted.items():
            if digest is not None and role not in contents.checkpoints:
                reader.fail(f"lacks the {role} that its engine reads at load")
    for reference in contents.references:
        if reference.checkpoint_digest not in wanted.values():
            reader.fail(f"its reference of {reference.hub_id} is to another checkpoint")


def _refuse_other_platform(archive: Path, manifest: Manifest, builders: Mapping[str, Builder]) -> None:
    builder = builders.get(manifest.builder)
    if builder is None:
        raise BundleMismatchError(
            f"{archive}: an engine for the {manifest.builder} runtime, which this machine does not have — run "
            "edgellm doctor"
        )
    theirs = {
        name.removeprefix("platform."): value
        for name, value in manifest.key.inputs.items()
        if name.startswith("platform.")
    }
    ours = builder.fingerprint.keyed
    different = [
        f"{name} is {_shown(theirs.get(name))} there, {_shown(ours.get(name))} here"
        for name in {**theirs, **ours}
        if theirs.get(name) != ours.get(name)
    ]
    if different:
        raise BundleMismatchError(
            f"{archive}: built for another platform: {'; '.join(different)} — import one that was exported on a "
            "machine "
            "like this, or build the engine here"
        )


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


def _unpack(
    archive: Path,
    head: _Head,
    store: Store,
    models_dir: Path,
    builder: Builder | None,
    on_progress: ProgressCallback,
) -> Imported:
    manifest, contents = head.manifest, head.contents
    key = manifest.key
    with (
        store.staging(key, on_progress, subprocesses=False) as staging,
        _checkpoint_folders(models_dir, contents) as folders,
    ):
        lease = store.lease(key)
        missing = {
            role: one for role, one in contents.checkpoints.items() if not _checkpoint_path(models_dir, one).exists()
        }
        if lease is not None and not missing:
            with lease:
                _publish_references(models_dir, contents)
                return Imported(lease.directory, lease.manifest, contents.references, True, head.signer)
        store.make_room(manifest.size_bytes, keep=key.short)
        _require_space(models_dir, sum(one.size_bytes for one in missing.values()))
        total_bytes = manifest.size_bytes + sum(one.size_bytes for one in contents.checkpoints.values())
        files = _Files(head, total_bytes, on_progress)
        files.unpack(BUNDLE_FOLDER, manifest.files, staging.directory)
        for role, checkpoint in contents.checkpoints.items():
            files.unpack(role, checkpoint.files, folders[role])
        head.reader.finish()
        on_progress(Progress("validate", "checking the engine"))
        if builder is not None:
            builder.validate(staging.directory)
        for role, checkpoint in contents.checkpoints.items():
            _publish_checkpoint(archive, role, checkpoint, folders[role], models_dir)
        if lease is None:
            directory = staging.publish(manifest)
        else:
            directory = lease.directory
            lease.close()
        _publish_references(models_dir, contents)
    if lease is None:
        mark_used(store.writable, directory.name)
        store.enforce_size(keep=key.short)
    return Imported(directory, manifest, contents.references, False, head.signer)


class _Files:
    """Writes members into folders, in the one order that there is."""

    def __init__(self, head: _Head, total_bytes: int, on_progress: ProgressCallback) -> None:
        self._reader = head.reader
        self._begun: tuple[str, int] | None = head.first
        self._total_bytes = total_bytes
        self._done_bytes = 0
        self._on_progress = on_progress

    def unpack(self, folder: str, files: Mapping[str, FileRecord], target: Path) -> None:
        for name, record in sorted(files.items()):
            self._unpack_file(f"{folder}/{name}", record, target / name)

    def _unpack_file(self, member: str, record: FileRecord, path: Path) -> None:
        if self._begun is None:
            self._reader.expect(member, record.size_bytes)
        elif self._begun != (member, record.size_bytes):
            name, size_bytes = self._begun
            self._reader.fail(
                f"holds {name[:200]!r} of {size_bytes} bytes where {member} of {record.size_bytes} bytes should be"
            )
        self._begun = None
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with path.open("xb") as stream:
            self._reader.copy(member, record.size_bytes, lambda block: self._take(stream, digest, block))
        if digest.hexdigest() != record.sha256:
            self._reader.fail(
                f"the SHA-256 of {member} is {digest.hexdigest()[:16]}…, its manifest says {record.sha256[:16]}…: it "
                "was changed or damaged"
            )

    def _take(self, stream: BinaryIO, digest: hashlib._Hash, block: bytes) -> None:
        stream.write(block)
        digest.update(block)
        self._done_bytes += len(block)
        self._on_progress(Progress("import", "unpacking the archive", self._done_bytes, self._total_bytes))


def _checkpoint_path(models_dir: Path, checkpoint: CheckpointContents) -> Path:
    return models_dir / CHECKPOINTS_FOLDER / checkpoint.digest


@contextmanager
def _checkpoint_folders(models_dir: Path, contents: ArchiveContents) -> Iterator[Mapping[str, Path]]:
    """Staging folders of the checkpoints, under one lock: what a killed import left there is removed first."""
    if not contents.checkpoints:
        yield {}
        return
    root = models_dir / CHECKPOINTS_FOLDER
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = os.open(root / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for leftover in root.glob(f"{STAGING_PREFIX}*"):
                shutil.rmtree(leftover, ignore_errors=True)
            folders = {role: Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=root)) for role in contents.checkpoints}
            try:
                yield folders
            finally:
                for folder in folders.values():
                    shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
    except OSError as error:
        raise cache_error(error, root) from error


def _publish_checkpoint(
    archive: Path, role: str, checkpoint: CheckpointContents, folder: Path, models_dir: Path
) -> None:
    names = list(checkpoint.files)
    path = folder / names[0] if len(names) == 1 and names[0].lower().endswith(".gguf") else folder
    found = checkpoint_digest(path)
    if found != checkpoint.digest:
        raise BundleDamagedError(
            f"{archive}: the digest of its {role} is {found[:16]}…, its engine was built from {checkpoint.digest[:16]}…"
        )
    target = _checkpoint_path(models_dir, checkpoint)
    if target.exists():
        return
    folder.chmod(0o755)
    synchronise_tree(folder)
    folder.rename(target)
    synchronise_directory(target.parent)


def _publish_references(models_dir: Path, contents: ArchiveContents) -> None:
    for reference in contents.references:
        write_reference(models_dir, reference)


def _require_space(models_dir: Path, needed_bytes: int) -> None:
    if not needed_bytes:
        return
    free_bytes = shutil.disk_usage(models_dir).free
    if free_bytes < needed_bytes + SPARE_DISK_BYTES:
        raise CacheError(
            f"{models_dir}: the checkpoint needs {mib(needed_bytes + SPARE_DISK_BYTES)}, {mib(free_bytes)} are free — "
            "free space there or set EDGELLM_CACHE_DIR to a folder with more"
        )
