"""``edgellm models``: what the catalogue offers, what is on this machine, how to add to it, and what a model holds."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from edgellm.cli.arguments import add_config_option, load_from_arguments
from edgellm.cli.progress_line import ProgressLine
from edgellm.errors import UsageError

if TYPE_CHECKING:
    from edgellm.engines.piper_voice import PiperSource
    from edgellm.engines.whisper_folder import WhisperSource

# The extra that serves models of a kind, and a module of it.
_EXTRA_OF: Mapping[str, tuple[str, str]] = {"asr": ("audio", "faster_whisper"), "tts": ("speech", "piper")}
_MEGABYTE_BYTES = 1_000_000


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="list|add|show|remove", required=True)
    listing = actions.add_parser("list", help="models of the catalogue, and which models are on this machine")
    add = actions.add_parser(
        "add", help="download a model, verified, or the newest commit of one that is here; prints its path"
    )
    add.add_argument(
        "name",
        metavar="NAME",
        help="a name of edgellm models list, or a Hugging Face id: ORG/NAME, ORG/NAME@REVISION, ORG/NAME:GGUF",
    )
    show = actions.add_parser("show", help="what a model is: its family, size, context and file")
    show.add_argument(
        "model", metavar="MODEL", help="a catalogue name, a Hugging Face id, a GGUF file or a safetensors directory"
    )
    show.add_argument("--path", action="store_true", help="print only the path of its file or folder")
    remove = actions.add_parser("remove", help="forget a fetched model and free what no other needs; engines stay")
    remove.add_argument("name", metavar="NAME", help="a name or a Hugging Face id as edgellm models list has it")
    for action in (listing, add, show, remove):
        action.add_argument("--cache-dir", metavar="FOLDER", help="where models are kept")
        add_config_option(action)


def run(namespace: argparse.Namespace) -> int:
    from edgellm.engines.cache_directory import models_dir
    from edgellm.engines.native_builder import has_engine_of_gguf
    from edgellm.service.engine_store import engine_store

    settings = load_from_arguments(namespace).settings
    folder, roots = (
        models_dir(settings.cache_dir),
        [Path(root).expanduser() for root in settings.engines.read_only_dirs],
    )
    has_engine = partial(has_engine_of_gguf, engine_store(settings))
    if namespace.action == "list":
        return _list(folder, roots, has_engine)
    if namespace.action == "add":
        return _add(namespace.name, folder, roots)
    if namespace.action == "remove":
        return _remove(namespace.name, folder)
    return _show(namespace.model, folder, roots, has_engine, path_only=namespace.path)


def _list(folder: Path, roots: list[Path], has_engine: Callable[[str], bool]) -> int:
    from edgellm.engines.catalogue import CATALOGUE, locate
    from edgellm.engines.hub.hub_id import HubId
    from edgellm.engines.hub.hub_model import find_model
    from edgellm.engines.hub.named_models import NAMED_MODELS
    from edgellm.engines.references import all_references

    for entry in CATALOGUE.values():
        if locate(entry.name, folder):
            state = "on this machine"
        elif entry.checkpoint_digest and has_engine(entry.checkpoint_digest):
            state = "engine without checkpoint"
        else:
            state = f"edgellm models add {entry.name}"
        size_bytes = sum(file.size_bytes for file in entry.files)
        print(f"{entry.name}  {size_bytes / _MEGABYTE_BYTES:.0f} MB  {entry.licence}  {state}")
        print(f"    {entry.summary}")
    for named in NAMED_MODELS.values():
        is_here = find_model(HubId(named.repository), folder, roots) is not None
        state = "on this machine" if is_here else f"edgellm models add {named.name}"
        print(f"{named.name}  {named.size_bytes / _MEGABYTE_BYTES:.0f} MB  {named.licence}  {state}")
        print(f"    {named.summary}: {named.repository}")
    listed = dict.fromkeys(reference.hub_id for root in (*roots, folder) for reference in all_references(root))
    for hub_id in listed:
        model = find_model(hub_id, folder, roots)
        if model is not None:
            is_here = model.path.exists()
            size = f"{_size_bytes(model.path) / _MEGABYTE_BYTES:.0f} MB" if is_here else "engine without checkpoint"
            print(f"{hub_id}  {size}  commit {model.reference.commit[:12]}")
    return 0


def _size_bytes(path: Path) -> int:
    return path.stat().st_size if path.is_file() else sum(file.stat().st_size for file in path.iterdir())


def _whole_name(name: str) -> str:
    """``whisper`` is whisper-tiny.en as long as it is the only one."""
    from edgellm.engines.catalogue import CATALOGUE

    begun = [known for known in CATALOGUE if known.startswith(f"{name}-")]
    return begun[0] if name not in CATALOGUE and len(begun) == 1 else name


def _add(name: str, folder: Path, roots: list[Path]) -> int:
    from edgellm.engines import whisper_files
    from edgellm.engines.catalogue import CATALOGUE, install
    from edgellm.engines.hub.hub_id import parse_hub_id
    from edgellm.engines.hub.named_models import NAMED_MODELS
    from edgellm.engines.references import find_reference
    from edgellm.engines.source import fetch

    entry, hub_id = CATALOGUE.get(_whole_name(name)), parse_hub_id(name)
    if entry is None and (hub_id is None or Path(name).exists()):
        known = ", ".join((*CATALOGUE, *NAMED_MODELS))
        raise UsageError(
            f"there is no model {name!r} in the catalogue — it has: {known}; a Hugging Face id is "
            "ORG/NAME; a GGUF file or safetensors directory needs no adding, give its path to edgellm serve"
        )
    if entry is None and hub_id is not None and (baked := find_reference(hub_id, roots)) is not None:
        raise UsageError(
            f"{hub_id} came with this image, at commit {baked.commit}, and is served from there — give another "
            f"revision, such as {hub_id.model_id}@COMMIT"
        )
    with ProgressLine() as line:
        if entry is not None:
            path, kind = install(entry, folder, line.show), entry.kind
        elif hub_id is not None:
            fetched = fetch(hub_id, folder, line.show)
            path, kind = fetched.path, "asr" if fetched.reference.kind == whisper_files.KIND else "auto"
    print(path)
    extra, module = _EXTRA_OF.get(kind, ("", ""))
    if extra and find_spec(module) is None:
        sys.stderr.write(f"edgellm: to serve it, install the {extra} extra: pip install 'edgellm[{extra}]'\n")
    return 0


def _remove(name: str, folder: Path) -> int:
    from edgellm.engines.catalogue import CATALOGUE, remove
    from edgellm.engines.hub.hub_id import parse_hub_id
    from edgellm.engines.hub.removal import remove_model

    entry, hub_id = CATALOGUE.get(name), parse_hub_id(name)
    if entry is not None:
        freed_bytes = remove(entry, folder)
    else:
        freed_bytes = None if hub_id is None else remove_model(hub_id, folder)
    if freed_bytes is None:
        raise UsageError(f"there is no fetched model {name!r} — see edgellm models list")
    print(f"{name if entry else hub_id}  {freed_bytes / _MEGABYTE_BYTES:.0f} MB freed")
    return 0


def _show(model: str, folder: Path, roots: list[Path], has_engine: Callable[[str], bool], *, path_only: bool) -> int:
    from edgellm.engines.piper_voice import is_piper_voice, resolve_piper_voice
    from edgellm.engines.source import SourceKind, resolve
    from edgellm.engines.whisper_folder import is_whisper, resolve_whisper
    from edgellm.errors import ModelSourceError

    if is_whisper(model, folder):
        return _show_whisper(resolve_whisper(model, folder, download=False), path_only=path_only)
    if is_piper_voice(model):
        return _show_voice(resolve_piper_voice(model, folder, download=False), path_only=path_only)
    source = resolve(model, folder, roots=roots, has_engine=has_engine, download=False)
    if not source.path.exists():
        raise ModelSourceError(f"{model}: its engine came without its checkpoint — see edgellm engine list and show")
    if path_only:
        print(source.path)
        return 0
    facts = _facts_of_gguf(source.path) if source.kind is SourceKind.GGUF else _facts_of_checkpoint(source.path)
    for name, value in {"name": source.model_id, "kind": source.kind.value, **facts, "path": source.path}.items():
        print(f"{name:<11} {value}")
    return 0


def _show_whisper(source: WhisperSource, *, path_only: bool) -> int:
    size = f"{_size_bytes(source.path) / _MEGABYTE_BYTES:.0f} MB"
    facts = {"name": source.model_id, "kind": "speech recognition", "family": "whisper", "size": size}
    for name, value in {} if path_only else facts.items():
        print(f"{name:<11} {value}")
    print(source.path if path_only else f"{'path':<11} {source.path}")
    return 0


def _show_voice(source: PiperSource, *, path_only: bool) -> int:
    from edgellm.engines.piper_voice import voice_facts

    voice = voice_facts(source)
    facts = {
        "name": source.model_id,
        "kind": "speech",
        "family": "piper",
        "voices": ", ".join(voice.speakers) or voice.name,
        "language": voice.language or "unknown",
        "size": f"{_size_bytes(source.weights) / _MEGABYTE_BYTES:.0f} MB",
    }
    for name, value in {} if path_only else facts.items():
        print(f"{name:<11} {value}")
    print(source.weights if path_only else f"{'path':<11} {source.weights}")
    return 0


def _facts_of_gguf(path: Path) -> dict[str, object]:
    from edgellm.engines.gguf_file import read_gguf
    from edgellm.engines.gguf_model import model_shape

    gguf = read_gguf(path)
    shape = model_shape(gguf)
    return {
        "family": shape.architecture,
        "parameters": f"{sum(prod(tensor.shape) for tensor in gguf.tensors.values()) / 1e6:.0f} million",
        "weights": shape.weight_type,
        "context": f"{shape.context_length} tokens",
        "vocabulary": f"{shape.vocab_size} tokens",
        "size": f"{gguf.size_bytes / _MEGABYTE_BYTES:.0f} MB",
    }


def _facts_of_checkpoint(path: Path) -> dict[str, object]:
    from edgellm.engines.checkpoint import Checkpoint
    from edgellm.engines.checkpoint_names import CONFIG_FILE
    from edgellm.engines.lowering.model_config import decoder_config
    from edgellm.engines.lowering.vision_config import is_vision_model, text_config

    checkpoint = Checkpoint(path)
    sees = is_vision_model(checkpoint.config)
    values = text_config(path / CONFIG_FILE, checkpoint.config) if sees else checkpoint.config
    config = decoder_config(path / CONFIG_FILE, values, "text_config." if sees else "")
    shapes = [located.stored.shape for located in checkpoint.tensors.values()]
    return {
        "family": f"{checkpoint.config['model_type']} (text and images)" if sees else config.model_type,
        "parameters": f"{sum(prod(shape) for shape in shapes) / 1e6:.0f} million",
        "weights": ", ".join(sorted({located.stored.dtype for located in checkpoint.tensors.values()})),
        "context": f"{config.usable_context_length} tokens",
        "vocabulary": f"{config.vocab_size} tokens",
    }
