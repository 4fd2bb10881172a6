"""Whisper models in CTranslate2's format: what their folders hold, and where a model argument finds one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgellm.engines.catalogue import CATALOGUE, file_path, install, locate
from edgellm.engines.progress import ProgressCallback, ignore_progress
from edgellm.errors import ModelSourceError

WEIGHTS_FILE = "model.bin"
REQUIRED_FILES = (WEIGHTS_FILE, "config.json", "tokenizer.json")
VOCABULARY_FILES = ("vocabulary.txt", "vocabulary.json")


@dataclass(frozen=True, slots=True)
class WhisperSource:
    path: Path
    model_id: str


def is_whisper(model: str) -> bool:
    """Whether the argument names a catalogue's Whisper model, or a folder that looks like one."""
    entry = CATALOGUE.get(model)
    if entry is not None:
        return entry.kind == "asr"
    folder = Path(model).expanduser()
    try:
        return (folder / WEIGHTS_FILE).is_file() and any((folder / name).is_file() for name in VOCABULARY_FILES)
    except (OSError, ValueError):
        return False


def resolve_whisper(
    model: str, models_dir: Path, *, download: bool = True, on_progress: ProgressCallback = ignore_progress
) -> WhisperSource:
    """The folder that ``model`` names; a catalogue's model is fetched where ``download`` allows it.

    Raises ModelSourceError.
    """
    entry = CATALOGUE.get(model)
    if entry is not None and entry.kind != "asr":
        raise ModelSourceError(f'{model} is no speech recognition model: leave kind = "asr" out')
    if entry is not None:
        if locate(model, models_dir) is None:
            if not download:
                raise ModelSourceError(
                    f"the model {model} is not on this machine yet — run: edgellm models add {model}"
                )
            install(entry, models_dir, on_progress)
        return WhisperSource(file_path(entry, models_dir).parent, model)
    folder = Path(model).expanduser()
    if not folder.is_dir():
        known = ", ".join(entry.name for entry in CATALOGUE.values() if entry.kind == "asr")
        raise ModelSourceError(
            f"{model}: no such folder, nor a speech recognition model of the catalogue (known: {known})"
        )
    for name in REQUIRED_FILES:
        if not (folder / name).is_file():
            raise ModelSourceError(
                f"{folder}: no {name}: give a folder with a Whisper model in CTranslate2's format "
                "(ct2-transformers-converter makes one, with --copy_files tokenizer.json preprocessor_config.json)"
            )
    resolved = folder.resolve()
    return WhisperSource(resolved, resolved.name)
