"""Removes fetched models: a reference, the snapshots that none names any more, and the files that none of those has."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from edgellm.engines.file_system import cache_error
from edgellm.engines.hub.hub_id import HubId
from edgellm.engines.hub.layout import PARTIAL_SUFFIX, RepositoryFolder
from edgellm.engines.references import REFS_FOLDER, all_references, reference_name


def remove_model(hub_id: HubId, models_dir: Path) -> int | None:
    """Forget what the id means here and give the bytes that were freed; None when it meant nothing.

    Files that are open stay with those who have them open. Raises CacheError.
    """
    reference = models_dir / REFS_FOLDER / reference_name(hub_id)
    if not reference.is_file():
        return None
    folder = RepositoryFolder.of(models_dir, hub_id.repository)
    try:
        if not folder.root.is_dir():
            reference.unlink()
            return 0
        descriptor = os.open(folder.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            reference.unlink()
            return _remove_unnamed(folder, hub_id.repository, models_dir)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise cache_error(error, models_dir) from error


def _remove_unnamed(folder: RepositoryFolder, repository: str, models_dir: Path) -> int:
    named = {
        folder.snapshot(reference.commit, reference.gguf_name)
        for reference in all_references(models_dir)
        if reference.hub_id.repository == repository
    }
    for snapshot in folder.snapshots.iterdir():
        if snapshot not in named:
            shutil.rmtree(snapshot)
    freed_bytes = 0
    for blob in folder.blobs.iterdir():
        status = blob.stat()
        # A file of a snapshot has two names. One that was begun is kept for the next try of whoever is left.
        if status.st_nlink == 1 and (blob.suffix != PARTIAL_SUFFIX or not named):
            blob.unlink()
            freed_bytes += status.st_size
    return freed_bytes
