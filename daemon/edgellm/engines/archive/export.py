"""Export: a bundle and what it needs as one file; the same bundle gives the same bytes."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from edgellm.config.regular_file import open_regular
from edgellm.engines.archive.contents import (
    BUNDLE_FOLDER,
    CONTENTS_MEMBER,
    MANIFEST_MEMBER,
    SIGNATURE_MEMBER,
    ArchiveContents,
    CheckpointContents,
)
from edgellm.engines.archive.tar_stream import COPY_BYTES, TarWriter
from edgellm.engines.checkpoint_digest import checkpoint_digest, checkpoint_files
from edgellm.engines.file_digest import whole_file_sha256
from edgellm.engines.file_system import cache_error
from edgellm.engines.lease import Lease
from edgellm.engines.manifest import FileRecord
from edgellm.engines.progress import Progress, ProgressCallback, ignore_progress
from edgellm.engines.references import Reference
from edgellm.errors import BundleDamagedError, BundleMismatchError, CheckpointError, ConfigError, ModelSourceError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FILE_MODE = 0o644


def export_bundle(
    lease: Lease,
    target: Path,
    *,
    checkpoints: Mapping[str, Path],
    references: Iterable[Reference] = (),
    key: Ed25519PrivateKey | None = None,
    overwrite: bool = False,
    on_progress: ProgressCallback = ignore_progress,
) -> int:
    """Write the archive of the leased bundle to ``target``, whole or not at all; give its size in bytes.

    ``checkpoints`` are the folders or files of the roles that the bundle's key names; a bundle that reads weights at
    load needs them. Raises BundleDamagedError when a file is not what the manifest says, CacheError for the disk.
    """
    try:
        is_there = target.exists()
    except OSError as error:
        raise cache_error(error, target.parent, what="the archive", elsewhere="write it to") from None
    if is_there and not overwrite:
        raise ConfigError(f"{target}: exists already — give another name, or --force to replace it")
    if is_there and not target.is_file():
        raise ConfigError(f"{target}: is no plain file, and is not replaced — give another name")
    contents = _contents(lease, checkpoints, references, on_progress)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                _write(stream, lease, contents, checkpoints, key, on_progress)
                stream.flush()
                os.fchmod(stream.fileno(), FILE_MODE)
                os.fsync(stream.fileno())
                size_bytes = os.fstat(stream.fileno()).st_size
            temporary.rename(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise cache_error(error, target.parent, what="the archive", elsewhere="write it to") from error
    return size_bytes


def _contents(
    lease: Lease, checkpoints: Mapping[str, Path], references: Iterable[Reference], on_progress: ProgressCallback
) -> ArchiveContents:
    manifest = lease.manifest
    digests = {"checkpoint": manifest.key.checkpoint_digest, "draft": manifest.key.inputs.get("draft")}
    needed = {role: digest for role, digest in digests.items() if isinstance(digest, str)}
    listed: dict[str, CheckpointContents] = {}
    for role, digest in (needed if manifest.needs_checkpoint else {}).items():
        path = checkpoints.get(role)
        if path is None or not path.exists():
            raise ModelSourceError(
                f"{manifest.model_id}: the engine reads its {role} at load, and it is not known where that is: name "
                "the model in place of the engine"
            )
        if checkpoint_digest(path) != digest:
            raise BundleMismatchError(
                f"{path}: its digest is {checkpoint_digest(path)[:16]}…, the engine was built from {digest[:16]}…"
            )
        listed[role] = CheckpointContents(digest, _records(path, on_progress))
    known = set(needed.values())
    chosen = {reference.to_json(): reference for reference in references if reference.checkpoint_digest in known}
    return ArchiveContents(
        hashlib.sha256(manifest.to_bytes()).hexdigest(), listed, tuple(chosen[text] for text in sorted(chosen))
    )


def _records(path: Path, on_progress: ProgressCallback) -> dict[str, FileRecord]:
    records = {}
    for name in _names(path):
        on_progress(Progress("hash", f"reading {name}"))
        file = _file(path, name)
        records[name] = FileRecord(file.stat().st_size, whole_file_sha256(file))
    return records


def _names(path: Path) -> list[str]:
    return sorted(checkpoint_files(path)) if path.is_dir() else [path.name]


def _file(path: Path, name: str) -> Path:
    return path / name if path.is_dir() else path


def _write(
    stream: BinaryIO,
    lease: Lease,
    contents: ArchiveContents,
    checkpoints: Mapping[str, Path],
    key: Ed25519PrivateKey | None,
    on_progress: ProgressCallback,
) -> None:
    writer = TarWriter(stream)
    manifest, listed = lease.manifest, contents.to_bytes()
    writer.add(MANIFEST_MEMBER, manifest.to_bytes())
    writer.add(CONTENTS_MEMBER, listed)
    if key is not None:
        from edgellm.engines.archive.signing import sign

        writer.add(SIGNATURE_MEMBER, sign(listed, key))
    total_bytes = manifest.size_bytes + sum(one.size_bytes for one in contents.checkpoints.values())
    done_bytes = 0

    def add(member: str, path: Path, record: FileRecord) -> None:
        nonlocal done_bytes
        done_bytes = _add_file(writer, member, path, record, on_progress, done_bytes, total_bytes)

    for name, record in sorted(manifest.files.items()):
        add(f"{BUNDLE_FOLDER}/{name}", lease.directory / name, record)
    for role, checkpoint in contents.checkpoints.items():
        for name, record in sorted(checkpoint.files.items()):
            add(f"{role}/{name}", _file(checkpoints[role], name), record)
    writer.finish()


def _add_file(
    writer: TarWriter,
    member: str,
    path: Path,
    record: FileRecord,
    on_progress: ProgressCallback,
    done_bytes: int,
    total_bytes: int,
) -> int:
    digest = hashlib.sha256()
    try:
        writer.begin(member, record.size_bytes)
        with open_regular(path) as stream:
            while block := stream.read(COPY_BYTES):
                digest.update(block)
                writer.write(block)
                done_bytes += len(block)
                on_progress(Progress("export", "writing the archive", done_bytes, total_bytes))
        writer.end()
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}: it cannot be exported") from None
    if digest.hexdigest() != record.sha256:
        raise BundleDamagedError(f"{path}: its SHA-256 is not that of its manifest — build the engine again")
    return done_bytes
