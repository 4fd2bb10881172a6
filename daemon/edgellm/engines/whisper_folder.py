"""Whisper models in CTranslate2's format: where a model argument finds one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgellm.engines.catalogue import CATALOGUE, file_path, install, locate
from edgellm.engines.hub.hub_id import HubId, parse_hub_id
from edgellm.engines.hub.hub_model import HubModel, fetch_model, find_model
from edgellm.engines.progress import ProgressCallback, ignore_progress
from edgellm.engines.source import not_here
from edgellm.engines.whisper_files import KIND, looks_like_whisper, refuse_incomplete
from edgellm.errors import ModelSourceError


@dataclass(frozen=True, slots=True)
class WhisperSource:
    path: Path
    model_id: str


def is_whisper(model: str, models_dir: Path) -> bool:
    """Whether the argument names a catalogue's Whisper model, a folder that looks like one, or the id of one that was
    fetched to ``models_dir``.
    """
    entry = CATALOGUE.get(model)
    if entry is not None:
        return entry.kind == "asr"
    try:
        folder = Path(model).expanduser()
        if folder.is_dir():
            return looks_like_whisper(path.name for path in folder.iterdir() if path.is_file())
    except (OSError, ValueError):
        return False
    hub_id = parse_hub_id(model)
    found = None if hub_id is None else find_model(hub_id, models_dir)
    return found is not None and found.reference.kind == KIND


def resolve_whisper(
    model: str, models_dir: Path, *, download: bool = True, on_progress: ProgressCallback = ignore_progress
) -> WhisperSource:
    """The folder that ``model`` names; one of the catalogue or of a hub is fetched where ``download`` allows it.

    Raises ModelError for what there is not or what the hub refuses, CacheError for what the disk does.
    """
    entry = CATALOGUE.get(model)
    if entry is not None and entry.kind != "asr":
        raise ModelSourceError(f'{model} is no speech recognition model — leave kind = "asr" out')
    if entry is not None:
        if locate(model, models_dir) is None:
            if not download:
                raise ModelSourceError(not_here(model, models_dir))
            install(entry, models_dir, on_progress)
        return WhisperSource(file_path(entry, models_dir).parent, model)
    folder = Path(model).expanduser()
    if folder.is_dir():
        refuse_incomplete(str(folder), (path.name for path in folder.iterdir() if path.is_file()))
        resolved = folder.resolve()
        return WhisperSource(resolved, resolved.name)
    hub_id = parse_hub_id(model)
    if hub_id is not None:
        return _of_hub(hub_id, model, models_dir, download=download, on_progress=on_progress)
    known = ", ".join(entry.name for entry in CATALOGUE.values() if entry.kind == "asr")
    raise ModelSourceError(
        f"{model}: no such folder, nor a speech recognition model of the catalogue (known: {known}), nor a Hugging "
        "Face id"
    )


def _of_hub(
    hub_id: HubId, model: str, models_dir: Path, *, download: bool, on_progress: ProgressCallback
) -> WhisperSource:
    found: HubModel | None = find_model(hub_id, models_dir)
    if found is None and not download:
        raise ModelSourceError(f"{model} is no folder here, and {not_here(model, models_dir)}")
    found = found or fetch_model(hub_id, models_dir, refuse_incomplete, on_progress)
    if found.reference.kind != KIND:
        raise ModelSourceError(f'{model} is no speech recognition model — leave kind = "asr" out')
    return WhisperSource(found.path, hub_id.model_id)
