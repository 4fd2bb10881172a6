"""Staging: the one way into the store: a folder under the bundle's lock, published whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgellm.engines.engine_key import EngineKey
from edgellm.engines.file_lock import exclusive_lock, try_exclusive_lock
from edgellm.engines.file_system import cache_error, refuse_network_file_system, synchronise_directory, synchronise_tree
from edgellm.engines.manifest import MANIFEST_FILE, Manifest
from edgellm.engines.progress import Progress, ProgressCallback, ignore_progress
from edgellm.engines.store_entries import (
    STAGING_PREFIX,
    entry_name,
    first_layout_names,
    lock_path,
    names_of_key,
    short_key_of,
    staging_names,
)

FOLDER_MODE = 0o755


class Staging:
    """``directory`` is empty at first and on the same file system as the bundle's final place.

    ``lock`` is the descriptor of the bundle's lock: a subprocess that writes into ``directory`` must inherit it.
    """

    def __init__(self, root: Path, key: EngineKey, directory: Path, lock: int) -> None:
        self.root = root
        self.key = key
        self.directory = directory
        self.lock = lock

    def publish(self, manifest: Manifest) -> Path:
        """Write ``manifest`` and make the folder the bundle of its key; give its final folder. Raises OSError.

        The caller has checked that the files are what the manifest says. A bundle of the same key that was there,
        a damaged one, is gone afterwards; processes that have it loaded keep what they have open.
        """
        content = manifest.to_bytes()
        Manifest.parse(content, self.directory / MANIFEST_FILE)  # what is published can be read
        with (self.directory / MANIFEST_FILE).open("xb") as stream:
            stream.write(content)
        self.directory.chmod(FOLDER_MODE)
        synchronise_tree(self.directory)
        for name in names_of_key(self.root, self.key.short):
            remove_folder(self.root, name, self.key.short)
        target = self.root / entry_name(manifest.model_id, self.key)
        if target.is_symlink():
            target.unlink()
        self.directory.rename(target)
        synchronise_directory(self.root)
        return target


@contextmanager
def open_staging(
    root: Path, key: EngineKey, on_progress: ProgressCallback = ignore_progress, *, subprocesses: bool = True
) -> Iterator[Staging]:
    """A staging folder for ``key`` below ``root``, under its lock; removed at the end unless it was published.

    Without ``subprocesses``, which inherit the lock, its file goes too where there is no bundle in the end.
    Waits while another process has the lock; look for the bundle again once it is held. Raises CacheError.
    """
    refuse_network_file_system(root)

    def on_wait() -> None:
        on_progress(Progress("wait", "waiting for another process that builds this engine"))

    try:
        root.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(lock_path(root, key.short), on_wait) as lock:
            remove_leftovers(root, own=key.short)
            folder = Path(tempfile.mkdtemp(prefix=f"{STAGING_PREFIX}{key.short}-", dir=root))
            try:
                yield Staging(root, key, folder, lock)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
                if not subprocesses and not names_of_key(root, key.short):
                    lock_path(root, key.short).unlink(missing_ok=True)
    except OSError as error:
        raise cache_error(error, root) from error


def remove_leftovers(root: Path, own: str = "") -> None:
    """Remove staging that no process owns, and bundles of the first layout. ``own``: a key whose lock we hold."""
    for name, short_key in staging_names(root):
        if short_key and short_key == own:
            shutil.rmtree(root / name, ignore_errors=True)
        else:
            _remove_unless_locked(root, name, short_key or _first_layout_lock(name))
    for name in first_layout_names(root):
        _remove_unless_locked(root, name, name, rename=True)


def remove_folder(root: Path, name: str, short_key: str) -> None:
    """Take a bundle's folder out of sight at once, then remove it. The caller holds its lock."""
    doomed = root / f"{STAGING_PREFIX}{short_key}-removed-{os.getpid()}"
    shutil.rmtree(doomed, ignore_errors=True)
    (root / name).rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _remove_unless_locked(root: Path, name: str, lock_key: str, *, rename: bool = False) -> None:
    path = lock_path(root, lock_key)
    lock = try_exclusive_lock(path)
    if lock is None:
        return
    try:
        if rename:
            remove_folder(root, name, short_key_of(name) or "")
        else:
            shutil.rmtree(root / name, ignore_errors=True)
        with suppress(OSError):
            path.unlink()
    finally:
        os.close(lock)


def _first_layout_lock(name: str) -> str:
    """The first layout built MODEL-KEY in ``.staging-MODEL-KEY-RANDOM``, under ``.MODEL-KEY.lock``."""
    return name.removeprefix(STAGING_PREFIX).rpartition("-")[0]
