"""ModelSource: what a model argument means, decided before anything is built or loaded.

A model is a name of the catalogue, a GGUF file, a directory with a safetensors checkpoint, or the id of a repository
on a Hugging Face hub. Everything else is refused with a sentence of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from shlex import quote

from edgellm.config.cache_location import CACHE_VARIABLE
from edgellm.config.model_kind import WITHOUT_TEXT
from edgellm.engines import whisper_files
from edgellm.engines.cache_directory import models_dir as models_dir_of
from edgellm.engines.catalogue import CATALOGUE, file_path, install, locate
from edgellm.engines.hub.hub_id import HubId, parse_hub_id
from edgellm.engines.hub.hub_model import HubModel, fetch_model, find_model
from edgellm.engines.hub.named_models import NAMED_MODELS
from edgellm.engines.progress import ProgressCallback, ignore_progress
from edgellm.errors import ModelSourceError

ENGINE_FILES = ("llm.engine", "dllm.engine", "spec_base.engine", "llm.gguf")
TOKENIZER_FILE = "tokenizer.json"
VOCABULARY_FILES = frozenset({"vocab.json", "merges.txt"})  # which NVIDIA's builder makes one of
SAVE_TOKENIZER = "save the tokenizer in its fast form, beside the weights"


class SourceKind(Enum):
    GGUF = "gguf"
    SAFETENSORS = "safetensors"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """``path`` is the GGUF file or the checkpoint directory; ``model_id`` the name clients see.

    ``source_ref`` is ``id@revision`` for a model of a hub. ``digest`` is its checkpoint's, as its reference or the
    catalogue has it: where a bundle came without its checkpoint, ``path`` does not exist and the digest still finds
    the bundle.
    """

    kind: SourceKind
    path: Path
    model_id: str
    source_ref: str | None = None
    digest: str | None = None


def resolve(
    model: str,
    models_dir: Path,
    *,
    roots: Sequence[Path] = (),
    has_engine: Callable[[str], bool] = lambda digest: False,
    download: bool = True,
    on_progress: ProgressCallback = ignore_progress,
) -> ModelSource:
    """The source that ``model`` names. What is missing is fetched where ``download`` allows it.

    ``has_engine`` says whether an engine of a checkpoint digest is here: a catalogue model with one needs no file.
    ``roots`` are read-only engine roots, whose references and checkpoints count before those of ``models_dir``. A
    model of a hub that is on this machine stays at its commit: ``fetch`` asks the hub again.
    """
    if not model or not model.strip():
        raise ModelSourceError(
            "the model argument is empty — give a catalogue name, a GGUF file or a checkpoint folder"
        )
    if "\0" in model or not _is_unicode(model):
        raise ModelSourceError("the model argument holds a character that no name may have")
    entry = CATALOGUE.get(model)
    if entry is not None and entry.kind in WITHOUT_TEXT:
        raise ModelSourceError(f"{model} {WITHOUT_TEXT[entry.kind]}: it has no engine, and no text is made with it")
    if entry is not None:
        path = locate(model, models_dir)
        if path is None and has_engine(entry.checkpoint_digest):
            path = file_path(entry, models_dir)
        elif path is None and not download:
            raise ModelSourceError(not_here(model, models_dir))
        elif path is None:
            path = install(entry, models_dir, on_progress)
        return ModelSource(SourceKind.GGUF, path, model, digest=entry.checkpoint_digest)
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
    hub_id = parse_hub_id(model)
    if hub_id is not None:
        found = find_model(hub_id, models_dir, roots)
        if found is None and not download:
            raise ModelSourceError(f"{model} is no folder here, and {not_here(model, models_dir)}")
        if found is not None and found.reference.kind == whisper_files.KIND:
            raise ModelSourceError(f"{model} {WITHOUT_TEXT['asr']}: it has no engine, and no text is made with it")
        return _of_hub(found or fetch_model(hub_id, models_dir, refuse_folder, on_progress))
    raise ModelSourceError(
        f"{model}: no such file or directory, nor a catalogue name (known: {', '.join((*CATALOGUE, *NAMED_MODELS))})"
    )


def is_fetchable(model: str) -> bool:
    """Whether ``model`` is a name of the catalogue, or an id of a hub and no path."""
    return model in CATALOGUE or (parse_hub_id(model) is not None and not Path(model).exists())


def not_here(model: str, models_dir: Path) -> str:
    """The refusal of a model that could be fetched, with where it was looked for and the way out."""
    add = f"edgellm models add {model}"
    looked = f"the model {model} is not on this machine yet: it is not in {models_dir}"
    chosen = os.environ.get(CACHE_VARIABLE)
    if not chosen or models_dir != models_dir_of(Path(chosen).expanduser()):
        return f"{looked} — run: {add}"
    # Of a service: whoever runs the command has another environment.
    return f"{looked}, by {CACHE_VARIABLE} — correct that variable, or run: env {CACHE_VARIABLE}={quote(chosen)} {add}"


def fetch(hub_id: HubId, models_dir: Path, on_progress: ProgressCallback = ignore_progress) -> HubModel:
    """What the id means on its hub now, of whatever kind; from here on, also what it means on this machine."""
    return fetch_model(hub_id, models_dir, _refuse_unknown, on_progress)


def _refuse_unknown(label: str, file_names: Iterable[str]) -> None:
    names = set(file_names)
    refuse = whisper_files.refuse_incomplete if whisper_files.looks_like_whisper(names) else refuse_folder
    refuse(label, names)


def _of_hub(model: HubModel) -> ModelSource:
    hub_id = model.reference.hub_id
    return ModelSource(
        SourceKind(model.reference.kind),
        model.path,
        hub_id.model_id,
        source_ref=f"{hub_id.model_id}@{hub_id.revision}",
        digest=model.reference.checkpoint_digest,
    )


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _file(path: Path) -> ModelSource:
    if path.suffix.lower() != ".gguf":
        raise ModelSourceError(
            f"{path}: not a GGUF file (its name does not end in .gguf) — give a GGUF file or a checkpoint folder"
        )
    return ModelSource(SourceKind.GGUF, path.resolve(), path.stem)


def _directory(path: Path) -> ModelSource:
    refuse_folder(str(path), (entry.name for entry in path.iterdir()))
    resolved = path.resolve()
    return ModelSource(SourceKind.SAFETENSORS, resolved, path.name or resolved.name)


def refuse_folder(label: str, file_names: Iterable[str]) -> None:
    """Raise ModelSourceError for a folder, or a repository, that is no safetensors checkpoint; ``label`` names it."""
    names = set(file_names)
    if any(name in names for name in ENGINE_FILES) or any(name.endswith(".engine") for name in names):
        raise ModelSourceError(
            f"{label}: an engine bundle, which is internal to the cache — give the checkpoint that it was built from"
        )
    has_weights = any(name.endswith(".safetensors") for name in names)
    if not has_weights and any(name.endswith(".onnx") or name == "onnx" for name in names):
        raise ModelSourceError(f"{label}: an ONNX model, which is not supported — give a safetensors checkpoint")
    if "config.json" not in names:
        ggufs = sorted(name for name in names if name.lower().endswith(".gguf"))
        hint = f" — give one of its files, such as {Path(label) / ggufs[0]}" if ggufs else " — give a checkpoint folder"
        raise ModelSourceError(f"{label}: no config.json{hint}")
    if not has_weights:
        if whisper_files.looks_like_whisper(names):
            raise ModelSourceError(f'{label}: a model in CTranslate2\'s format — serve it with kind = "asr"')
        if any(name.endswith((".bin", ".pt", ".pth")) for name in names):
            raise ModelSourceError(
                f"{label}: weights are in PyTorch files only, which can run code when read — convert them to "
                "safetensors"
            )
        raise ModelSourceError(f"{label}: no weights (no .safetensors file)")
    if TOKENIZER_FILE not in names and not names >= VOCABULARY_FILES:
        raise ModelSourceError(f"{label}: no {TOKENIZER_FILE} — {SAVE_TOKENIZER}")
