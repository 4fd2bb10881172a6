"""A hub's model on this machine: found by its reference, or fetched and then given one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgellm.engines.checkpoint_digest import checkpoint_digest
from edgellm.engines.hub.download import disk_failure, fetch
from edgellm.engines.hub.failure import offline_failure
from edgellm.engines.hub.hub_id import HubId
from edgellm.engines.hub.layout import RepositoryFolder
from edgellm.engines.progress import ProgressCallback, ignore_progress
from edgellm.engines.references import Reference, find_reference, write_reference

CHECKPOINTS_FOLDER = "checkpoints"
OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_TRUE = ("1", "ON", "YES", "TRUE")

Refuse = Callable[[str, Iterable[str]], None]


@dataclass(frozen=True, slots=True)
class HubModel:
    """``path`` is the folder of a checkpoint or of a Whisper model, or a GGUF file. It is absent where a bundle came
    without its checkpoint.
    """

    path: Path
    reference: Reference


def find_model(hub_id: HubId, models_dir: Path, roots: Sequence[Path] = ()) -> HubModel | None:
    """What is on this machine, read-only ``roots`` first; no hub is asked."""
    reference = find_reference(hub_id, (*roots, models_dir))
    if reference is None:
        return None
    name = reference.gguf_name
    snapshot = RepositoryFolder.of(models_dir, hub_id.repository).snapshot(reference.commit, name)
    places = [snapshot, *(root / CHECKPOINTS_FOLDER / reference.checkpoint_digest for root in (*roots, models_dir))]
    paths = [place / name if name else place for place in places]
    return HubModel(next((path for path in paths if path.exists()), paths[0]), reference)


def fetch_model(
    hub_id: HubId, models_dir: Path, refuse: Refuse, on_progress: ProgressCallback = ignore_progress
) -> HubModel:
    """Fetch what the id means on the hub now, whatever an earlier fetch brought.

    Raises ModelError for what the hub refuses and for a checkpoint that is damaged, CacheError for what the disk does.
    """
    if any(os.environ.get(name, "").upper() in _TRUE for name in OFFLINE_VARIABLES):
        raise offline_failure(hub_id)
    fetched = fetch(hub_id, models_dir, refuse, on_progress)
    reference = Reference(hub_id, fetched.commit, fetched.kind, fetched.gguf_name, checkpoint_digest(fetched.path))
    try:
        write_reference(models_dir, reference)
    except OSError as error:
        raise disk_failure(error, models_dir) from None
    return HubModel(fetched.path, reference)
