"""Checkpoints that came with imported engines: ``checkpoints/DIGEST`` of the models folder, gone with their engines.

Whoever adds to the folder or removes from it holds its lock.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path

from edgellm.engines.file_lock import lock_open_file
from edgellm.engines.file_system import tree_bytes
from edgellm.engines.hub.hub_model import CHECKPOINTS_FOLDER, find_model
from edgellm.engines.references import REFS_FOLDER, all_references, reference_name
from edgellm.engines.store_entries import Entry

STAGING_PREFIX = ".staging-"
LOCK_FILE = ".lock"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def remove_unowned_checkpoints(
    models_dir: Path, find_entries: Callable[[], Sequence[Entry]], roots: Sequence[Path]
) -> dict[str, int]:
    """Remove checkpoints that no engine was built from, and references that lead nowhere; bytes freed by digest.

    Nothing goes while an engine cannot be read, which may own any of them, or while an import runs. Raises OSError.
    """
    folder = models_dir / CHECKPOINTS_FOLDER
    if not folder.is_dir() and not (models_dir / REFS_FOLDER).is_dir():
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not lock_open_file(lock, fcntl.LOCK_EX):
            return {}
        references = list(all_references(models_dir))  # each was written after its engine: that one is found below
        keys = [entry.key for entry in find_entries()]
        if None in keys:
            return {}
        owned = {str(digest) for key in keys if key for digest in (key.checkpoint_digest, key.inputs["draft"])}
        freed = dict(_removed(folder, owned))
        for reference in references:
            if reference.checkpoint_digest not in owned:
                found = find_model(reference.hub_id, models_dir, roots)
                if found is None or not found.path.exists():
                    (models_dir / REFS_FOLDER / reference_name(reference.hub_id)).unlink(missing_ok=True)
        return freed
    finally:
        os.close(lock)


def _removed(folder: Path, owned: Set[str]) -> Iterator[tuple[str, int]]:
    for path in sorted(folder.iterdir()):
        if _DIGEST.fullmatch(path.name) and path.name not in owned:
            size_bytes = tree_bytes(path)
            # Out of sight at once; what is left of it, the next import removes.
            doomed = folder / f"{STAGING_PREFIX}{path.name}"
            path.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
            yield path.name, size_bytes
