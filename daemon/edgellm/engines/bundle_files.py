"""Files of a bundle against its manifest: recorded when it is made, checked in part at a load, in full on demand.

Only regular files count; a symbolic link could lead out of the bundle and is refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from edgellm.engines.file_digest import whole_file_sha256
from edgellm.engines.manifest import DERIVED_FOLDER, MANIFEST_FILE, FileRecord, Manifest, is_bundle_path
from edgellm.engines.progress import Progress, ProgressCallback, ignore_progress
from edgellm.errors import BundleDamagedError

HASHED_AT_LOAD_BYTES = 16 << 20
"""Files up to this size are hashed at every load: configurations, tokenizers, templates. Larger ones by size only."""


def record_files(directory: Path, on_progress: ProgressCallback = ignore_progress) -> dict[str, FileRecord]:
    """Size and SHA-256 of every file below ``directory``, without manifest and derived parts."""
    names = sorted(_regular_files(directory))
    sizes = {name: (directory / name).stat().st_size for name in names}
    total_bytes, done_bytes = sum(sizes.values()), 0
    records: dict[str, FileRecord] = {}
    for name in names:
        on_progress(Progress("hash", "recording the bundle's files", done_bytes, total_bytes))
        records[name] = FileRecord(sizes[name], whole_file_sha256(directory / name))
        done_bytes += sizes[name]
    on_progress(Progress("hash", "recording the bundle's files", done_bytes, total_bytes))
    return records


def check_at_load(directory: Path, manifest: Manifest) -> None:
    """Sizes of all files, and every byte of small ones. Raises BundleDamagedError naming the file."""
    for name, record in manifest.files.items():
        problem = _problem(directory, name, record, hash_up_to_bytes=HASHED_AT_LOAD_BYTES)
        if problem:
            raise BundleDamagedError(problem)


def problems_of(directory: Path, manifest: Manifest, on_progress: ProgressCallback = ignore_progress) -> Iterator[str]:
    """Every file that is not what the manifest says, by every byte, and every file that it does not name."""
    total_bytes, done_bytes = manifest.size_bytes, 0
    for name, record in manifest.files.items():
        on_progress(Progress("verify", "checking the bundle's files", done_bytes, total_bytes))
        problem = _problem(directory, name, record, hash_up_to_bytes=None)
        if problem:
            yield problem
        done_bytes += record.size_bytes
    on_progress(Progress("verify", "checking the bundle's files", done_bytes, total_bytes))
    try:
        found = set(_regular_files(directory))
    except BundleDamagedError as error:
        yield str(error)
        return
    for name in sorted(found - set(manifest.files)):
        yield f"{directory / name}: not part of the bundle"


def _problem(directory: Path, name: str, record: FileRecord, *, hash_up_to_bytes: int | None) -> str | None:
    path = directory / name
    try:
        for parent in PurePosixPath(name).parents:
            if (directory / parent).is_symlink() and str(parent) != ".":
                return f"{directory / parent}: not a folder of the bundle: the bundle is damaged"
        status = path.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            return f"{path}: not a regular file: the bundle is damaged"
        if status.st_size != record.size_bytes:
            return f"{path}: {status.st_size} bytes, its manifest says {record.size_bytes}: the bundle is damaged"
        if hash_up_to_bytes is not None and record.size_bytes > hash_up_to_bytes:
            return None
        if whole_file_sha256(path) != record.sha256:
            return f"{path}: its SHA-256 is not that of its manifest: the bundle is damaged"
    except OSError as error:
        return f"{path}: {error.strerror}: the bundle is damaged"
    return None


def _regular_files(directory: Path, prefix: str = "") -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in entries:
            name = prefix + entry.name
            if not prefix and entry.name in (MANIFEST_FILE, DERIVED_FOLDER):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _regular_files(directory / entry.name, f"{name}/")
            elif not entry.is_file(follow_symlinks=False) or not is_bundle_path(name):
                raise BundleDamagedError(f"{directory / entry.name}: no regular file with a plain name")
            else:
                yield name
