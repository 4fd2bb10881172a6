"""ModelSource: what a model argument means, decided before anything is built or loaded.

A model is a name of the catalogue, a GGUF file, or a directory with a safetensors checkpoint. Everything else is
refused with a sentence of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from edgellm.engines.catalogue import CATALOGUE, install, locate
from edgellm.engines.progress import ProgressCallback, ignore_progress
from edgellm.errors import ModelSourceError

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[\w.-]{1,96}")
ENGINE_FILES = ("llm.engine", "dllm.engine", "spec_base.engine", "llm.gguf")
TOKENIZER_FILE = "tokenizer.json"


class SourceKind(Enum):
    GGUF = "gguf"
    SAFETENSORS = "safetensors"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """``path`` is the GGUF file or the checkpoint directory; ``model_id`` the name clients see."""

    kind: SourceKind
    path: Path
    model_id: str


def resolve(
    model: str, models_dir: Path, *, download: bool = True, on_progress: ProgressCallback = ignore_progress
) -> ModelSource:
    """The source that ``model`` names. A catalogue model is fetched when it is missing and ``download`` allows it."""
    if not model or not model.strip():
        raise ModelSourceError("the model argument is empty: give a catalogue name, a GGUF file or a checkpoint folder")
    if "\0" in model or not _is_unicode(model):
        raise ModelSourceError("the model argument holds a character that no name may have")
    entry = CATALOGUE.get(model)
    if entry is not None:
        path = locate(model, models_dir)
        if path is None and not download:
            raise ModelSourceError(f"the model {model!r} is not in {models_dir} yet and may not be downloaded here")
        return ModelSource(SourceKind.GGUF, path or install(entry, models_dir, on_progress), model)
    path = Path(model).expanduser()
    try:
        if path.is_dir():
            return _directory(path)
        if path.is_file():
            return _file(path)
        exists = path.exists()
    except OSError as error:
        raise ModelSourceError(f"{model}: {error.strerror}") from None
    if exists:
        raise ModelSourceError(f"{path}: neither a file nor a directory")
    if HUB_ID.fullmatch(model):
        raise ModelSourceError(
            f"{model!r} is not a folder here, and models are not fetched from Hugging Face yet: download the "
            "checkpoint and give the path of its folder"
        )
    known = ", ".join(CATALOGUE)
    raise ModelSourceError(f"{model}: no such file or directory, nor a catalogue name (known: {known})")


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _file(path: Path) -> ModelSource:
    if path.suffix.lower() != ".gguf":
        raise ModelSourceError(
            f"{path}: not a GGUF file (its name does not end in .gguf): give a GGUF file or a checkpoint folder"
        )
    return ModelSource(SourceKind.GGUF, path.resolve(), path.stem)


def _directory(path: Path) -> ModelSource:
    names = {entry.name for entry in path.iterdir()}
    if any(name in names for name in ENGINE_FILES) or any(name.endswith(".engine") for name in names):
        raise ModelSourceError(
            f"{path}: an engine bundle, which is internal to the cache: give the checkpoint that it was built from"
        )
    if any(name.endswith(".onnx") for name in names):
        raise ModelSourceError(f"{path}: an ONNX model, which is not supported: give a safetensors checkpoint")
    if "config.json" not in names:
        ggufs = sorted(name for name in names if name.lower().endswith(".gguf"))
        hint = f": give one of its files, such as {path / ggufs[0]}" if ggufs else ": is it a checkpoint folder?"
        raise ModelSourceError(f"{path}: no config.json{hint}")
    if not any(name.endswith(".safetensors") for name in names):
        if any(name.endswith((".bin", ".pt", ".pth")) for name in names):
            raise ModelSourceError(
                f"{path}: weights are in PyTorch files only, which can run code when read: convert them to safetensors"
            )
        raise ModelSourceError(f"{path}: no weights (no .safetensors file)")
    if TOKENIZER_FILE not in names:
        raise ModelSourceError(f"{path}: no {TOKENIZER_FILE}: save the tokenizer in its fast form, beside the weights")
    resolved = path.resolve()
    return ModelSource(SourceKind.SAFETENSORS, resolved, path.name or resolved.name)
