"""Engines and models of a bundle, brought to where prewarming looks for them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from edgellm.durable_file import sync_folder
from edgellm.errors import ReleaseSourceError
from edgellm.host.bundle_manifest import CHUNK_BYTES, read_manifest, sha256_of
from edgellm.host.disk_room import Need, write_failure
from edgellm.host.paths import HostPaths
from edgellm.host.source import ENGINES, MODELS

TARGETS = {ENGINES: "import", MODELS: "models"}
WHAT = "what the bundle brings"
# An engine's archive stays where it is, and is unpacked beside it.
ROOM_FACTORS = {ENGINES: 2, MODELS: 1}
FILE_ROOM_BYTES = 4_096  # what a file takes beside its content, at most
FILE_MODE, FOLDER_MODE = 0o640, 0o750
UNFINISHED = ".unfinished"


@dataclass(frozen=True, slots=True)
class Extra:
    """One file. ``replaced_bytes`` is the size of the one in whose place it comes; None where there is none."""

    kind: str
    source: Path
    target: Path
    size_bytes: int
    replaced_bytes: int | None


class BundleExtras:
    """``folder`` is that of a bundle whose files were verified; None brings nothing."""

    def __init__(self, folder: Path | None, paths: HostPaths) -> None:
        self._folder = folder
        self._data = paths.service_data

    @cached_property
    def wanted(self) -> Sequence[Extra]:
        """Those whose bytes are not there already, by the SHA-256 of the manifest. Raises ReleaseSourceError."""
        return () if self._folder is None else tuple(self._compared(self._folder))

    def _compared(self, folder: Path) -> Iterator[Extra]:
        manifest = read_manifest(folder)
        for kind, target in TARGETS.items():
            for name in sorted(manifest.below(kind)):
                file, there = manifest.files[name], self._data / target / Path(name).relative_to(kind)
                size_bytes = there.stat().st_size if there.is_file() else None
                if size_bytes != file.size_bytes or not _has_digest(there, file.sha256):
                    yield Extra(kind, folder / name, there, file.size_bytes, size_bytes)

    def needs(self) -> Iterator[Need]:
        """Room that they take, at most, and where. A file that comes in another's place lies beside it for a moment."""
        for kind, target in TARGETS.items():
            chosen = [one for one in self.wanted if one.kind == kind]
            grown_bytes = sum(max(0, one.size_bytes - (one.replaced_bytes or 0)) for one in chosen)
            beside_bytes = max((min(one.size_bytes, one.replaced_bytes or 0) for one in chosen), default=0)
            needed_bytes = grown_bytes * ROOM_FACTORS[kind] + beside_bytes + len(chosen) * FILE_ROOM_BYTES
            if chosen:
                yield Need(self._data / target, needed_bytes, WHAT)

    def bring(self) -> Sequence[str]:
        """All of them, or none that was not there. Return a line for each that took another's place. Raises
        UpgradeError, or HostSpaceError for a disk that is full."""
        brought: list[Extra] = []
        made: list[Path] = []
        try:
            for extra in self.wanted:
                made += _make_folders(extra.target.parent, self._data)
                _copy_for_service(extra, self._data)
                brought.append(extra)
        except BaseException:
            for extra in brought:
                if extra.replaced_bytes is None:
                    extra.target.unlink(missing_ok=True)
            for folder in reversed(made):
                _remove_if_empty(folder)
            raise
        replaced = [one for one in brought if one.replaced_bytes is not None]
        return [f"replaced {one.target}: its bytes were not those of the bundle" for one in replaced]


def forget_unfinished(paths: HostPaths) -> None:
    """What an upgrade that was cut short left of a copy. Raises OSError."""
    for target in TARGETS.values():
        for folder, _, names in os.walk(paths.service_data / target):
            for name in names:
                if name.startswith(".") and name.endswith(UNFINISHED):
                    (Path(folder) / name).unlink(missing_ok=True)


def unfinished_of(target: Path) -> Path:
    return target.with_name(f".{target.name}{UNFINISHED}")


def _has_digest(file: Path, sha256: str) -> bool:
    try:
        return sha256_of(file) == sha256
    except ReleaseSourceError:
        return False  # what cannot be read is not whole


def _make_folders(folder: Path, owned_as: Path) -> Sequence[Path]:
    """Return those that were not there, the outermost first."""
    status = owned_as.stat()
    missing = [one for one in (folder, *folder.parents) if not one.exists()][::-1]
    try:
        for one in missing:
            one.mkdir(mode=FOLDER_MODE)
            shutil.chown(one, status.st_uid, status.st_gid)
    except OSError as error:
        raise write_failure(folder, error) from None
    return missing


def _copy_for_service(extra: Extra, owned_as: Path) -> None:
    """The service's own file, there whole or not at all."""
    status, unfinished = owned_as.stat(), unfinished_of(extra.target)
    try:
        unfinished.unlink(missing_ok=True)
        # The service's user may write into the folder: root follows none of its links.
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as target, extra.source.open("rb") as source:
            shutil.copyfileobj(source, target, CHUNK_BYTES)
            target.flush()
            os.fchown(descriptor, status.st_uid, status.st_gid)
            os.fchmod(descriptor, FILE_MODE)
            os.fsync(descriptor)
        unfinished.replace(extra.target)
        sync_folder(extra.target.parent)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise write_failure(extra.target, error) from None
        raise


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # the service may have put something there
        folder.rmdir()
