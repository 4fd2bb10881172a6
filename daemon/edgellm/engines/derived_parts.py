"""Derived parts: what is made from a bundle for one kind of CPU, below ``derived/NAME/`` and named in its manifest.

A part saves time and memory and is never needed: one that is missing, damaged or of another kind is as good as none.
It has a key of its own, so that an upgrade of edgellm makes it anew and leaves the bundle alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from edgellm.engines.bundle_files import file_problem, record_files
from edgellm.engines.engine_key import KeyValue
from edgellm.engines.file_system import synchronise_directory, synchronise_tree
from edgellm.engines.manifest import DERIVED_FOLDER, MANIFEST_FILE, DerivedPart, Manifest

PartWriter = Callable[[Path], bool]
"""Fills an empty folder; False when there is nothing to make of this bundle here."""


@dataclass(frozen=True, slots=True)
class PartKind:
    """``key`` is everything that the part depends on beside the bundle itself."""

    name: str
    key: Mapping[str, KeyValue]


def find_part(directory: Path, manifest: Manifest, kind: PartKind) -> Path | None:
    """The folder of the bundle's part of that kind, its files there in full size; None where there is none."""
    part = manifest.derived.get(kind.name)
    if part is None or part.key != dict(kind.key):
        return None
    folder = part_folder(directory, kind.name)
    if any(file_problem(folder, name, record, hash_up_to_bytes=0) for name, record in part.files.items()):
        return None
    return folder


def part_folder(directory: Path, name: str) -> Path:
    return directory / DERIVED_FOLDER / name


def publish_part(staging: Path, directory: Path, manifest: Manifest, kind: PartKind) -> None:
    """Make ``staging``, a folder on the same file system, the bundle's part of that kind. Raises OSError.

    The caller holds the bundle's lock and its manifest's exclusive lock. The part is whole before the manifest, which
    is replaced at once, names it: whoever reads either sees the old state or the new one.
    """
    parts = {**manifest.derived, kind.name: DerivedPart(dict(kind.key), record_files(staging))}
    content = replace(manifest, derived=parts).to_bytes()
    Manifest.parse(content, directory / MANIFEST_FILE)  # what is published can be read
    new_manifest = staging.with_name(f"{staging.name}-manifest")
    new_manifest.write_bytes(content)
    try:
        synchronise_tree(staging)
        folder = part_folder(directory, kind.name)
        folder.parent.mkdir(exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        staging.chmod(folder.parent.stat().st_mode & 0o777)
        staging.rename(folder)
        synchronise_directory(folder.parent)
        with new_manifest.open("rb") as stream:
            os.fsync(stream.fileno())
        new_manifest.replace(directory / MANIFEST_FILE)
        synchronise_directory(directory)
    finally:
        new_manifest.unlink(missing_ok=True)
