"""Lease: a bundle held against eviction, for as long as the lease is open or a child has inherited its descriptor."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from edgellm.config.regular_file import NotRegularFileError, regular_descriptor
from edgellm.engines.bundle_files import check_at_load
from edgellm.engines.engine_key import EngineKey
from edgellm.engines.file_lock import is_still, lock_open_file
from edgellm.engines.manifest import MANIFEST_FILE, MAX_MANIFEST_BYTES, Manifest
from edgellm.errors import BundleDamagedError, EngineError


class Lease:
    """Holds the open manifest of a bundle, shared-locked unless its root is read-only. ``close`` is idempotent.

    A worker process that inherits ``fileno()`` (``pass_fds``) keeps the bundle as well: the lock ends with the last
    process that has it open.
    """

    def __init__(self, directory: Path, manifest: Manifest, descriptor: int, *, read_only: bool) -> None:
        self.directory = directory
        self.manifest = manifest
        self.read_only = read_only
        self._descriptor = descriptor

    def fileno(self) -> int:
        """The descriptor of the open manifest; -1 once closed."""
        return self._descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def lease_bundle(directory: Path, *, read_only: bool, key: EngineKey) -> Lease | None:
    """Lock the bundle of ``key`` and check it, in this order; None when it is not there, or was removed meanwhile.

    Raises BundleDamagedError or ManifestVersionError for a bundle that must not be loaded.
    """
    path = directory / MANIFEST_FILE
    try:
        descriptor = _open_manifest(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        if not read_only:
            # Whoever evicts holds the exclusive lock only for as long as a rename takes.
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if not is_still(path, descriptor):
                os.close(descriptor)
                return None
        manifest = Manifest.parse(_content(descriptor), path)
        if manifest.key != key:
            _refuse_key(path)
        check_at_load(directory, manifest)
    except BaseException:
        os.close(descriptor)
        raise
    return Lease(directory, manifest, descriptor, read_only=read_only)


def hold_bundle(directory: Path, *, read_only: bool) -> Lease | None:
    """A lease beside somebody else's on a bundle that is loaded, unchecked; None when there is no bundle."""
    path = directory / MANIFEST_FILE
    try:
        descriptor = _open_manifest(path)
    except (OSError, EngineError):
        return None
    try:
        if not read_only:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        manifest = Manifest.parse(_content(descriptor), path)
    except (OSError, EngineError):
        os.close(descriptor)
        return None
    return Lease(directory, manifest, descriptor, read_only=read_only)


def lock_for_removal(directory: Path) -> int | None:
    """The manifest's descriptor under an exclusive lock, or None when a lease holds the bundle.

    Raises BundleDamagedError for a manifest that is no regular file, which no lease can hold.
    """
    path = directory / MANIFEST_FILE
    descriptor = _open_manifest(path)
    if lock_open_file(descriptor, fcntl.LOCK_EX) and is_still(path, descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _open_manifest(path: Path) -> int:
    """Raises OSError, and BundleDamagedError for what is no regular file."""
    try:
        return regular_descriptor(path, follow_symlinks=False)
    except NotRegularFileError as error:
        raise BundleDamagedError(f"{path}: {error.strerror}: the bundle is damaged") from None


def _content(descriptor: int) -> bytes:
    content = bytearray()
    while block := os.pread(descriptor, MAX_MANIFEST_BYTES + 1 - len(content), len(content)):
        content += block
    return bytes(content)


def _refuse_key(path: Path) -> NoReturn:
    raise BundleDamagedError(f"{path}: the key in it is not the one that the folder is named for")
