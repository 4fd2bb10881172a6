"""Which files of a repository make a model: configuration, tokenizer and one set of weights, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgellm.engines import whisper_files
from edgellm.engines.hub.hub_id import HubId
from edgellm.errors import ModelSourceError

CONFIG_FILE = "config.json"
INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
# Configuration and tokenizer files are small; a larger one is data of another kind.
MAX_METADATA_BYTES = 256 << 20
MAX_FILES = 4096
# Speech models keep the weights of their codec in a folder of their own.
SUBFOLDERS: Mapping[str, tuple[str, ...]] = {"qwen3_tts": ("speech_tokenizer",)}

_NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}/)?[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}")
_POOLING_CONFIG = re.compile(r"\d_Pooling/config\.json")
_METADATA_SUFFIXES = (".json", ".jinja", ".model")
_METADATA_NAMES = ("merges.txt", "vocab.txt")
_SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HubFile:
    """``digest`` is the SHA-256 of a large file (64 digits) or git's SHA-1 of a small one (40)."""

    name: str
    size_bytes: int
    digest: str


def usable_files(files: Iterable[HubFile]) -> dict[str, HubFile]:
    """Files by name. A name that could leave its folder, or hide in it, is none that a model needs."""
    return {file.name: file for file in files if _NAME.fullmatch(file.name) and ".." not in file.name}


def metadata_files(files: Mapping[str, HubFile]) -> list[HubFile]:
    """Configuration, tokenizer and template files of the repository's root, and how its embeddings are pooled."""
    return [
        file
        for file in files.values()
        if _is_metadata(file) and ("/" not in file.name or _POOLING_CONFIG.fullmatch(file.name))
    ]


def _is_metadata(file: HubFile) -> bool:
    name = file.name.rpartition("/")[2]
    if file.size_bytes > MAX_METADATA_BYTES or (name.endswith(".index.json") and name != INDEX_FILE):
        return False
    return name.endswith(_METADATA_SUFFIXES) or name in _METADATA_NAMES


def weight_files(
    hub_id: HubId, files: Mapping[str, HubFile], index: Mapping[str, Any] | None, config: Mapping[str, Any]
) -> list[HubFile]:
    """The set of weights that the index names, or else ``model.safetensors``, or else all there are.

    Repositories often hold the same weights twice, in another layout or format: one set is enough.
    """
    names = sorted(name for name in files if "/" not in name and name.endswith(".safetensors"))
    if index is not None:
        weight_map = index.get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise ModelSourceError(f"{hub_id}: weight_map of its {INDEX_FILE} is not an object of file names")
        names = sorted(set(weight_map.values()))
    elif SINGLE_FILE in names:
        names = [SINGLE_FILE]
    for name in names:
        if name not in files or "/" in name:
            raise ModelSourceError(f"{hub_id}: its {INDEX_FILE} names {name[:200]!r}, which the repository lacks")
    model_type = config.get("model_type")
    folders = SUBFOLDERS.get(model_type, ()) if isinstance(model_type, str) else ()
    inside = [
        file
        for file in files.values()
        if file.name.partition("/")[0] in folders
        and "/" in file.name
        and (_is_metadata(file) or file.name.endswith(".safetensors"))
    ]
    chosen = [*(files[name] for name in names), *inside]
    if len(chosen) > MAX_FILES:
        raise ModelSourceError(f"{hub_id}: {len(chosen)} weights files are more than the {MAX_FILES} that are read")
    return chosen


def files_of_whisper(files: Mapping[str, HubFile]) -> list[HubFile]:
    """All that a Whisper model in CTranslate2's format consists of."""
    return [files[name] for name in whisper_files.FILES if name in files]


def gguf_file(hub_id: HubId, files: Mapping[str, HubFile]) -> HubFile:
    """The one GGUF file that the id means. Raises ModelSourceError that lists what there is to choose from."""
    ggufs = {
        name: file
        for name, file in files.items()
        if "/" not in name and name.lower().endswith(".gguf") and not name.lower().startswith("mmproj")
    }
    whole = {name: file for name, file in ggufs.items() if not _SPLIT.search(name)}
    if not ggufs:
        raise ModelSourceError(f"{hub_id}: the repository holds no GGUF file")
    if not whole:
        raise ModelSourceError(
            f"{hub_id}: its GGUF files are split into parts, which are not read — use one whole file"
        )
    if not hub_id.file:
        if len(whole) == 1:
            return next(iter(whole.values()))
        raise ModelSourceError(f"{hub_id}: {len(whole)} GGUF files — choose one, such as {_choices(hub_id, whole)}")
    wanted = hub_id.file.lower()
    exact = [file for name, file in whole.items() if name.lower() in (wanted, f"{wanted}.gguf")]
    tagged = [file for name, file in whole.items() if wanted in re.split(r"[.-]", name.lower()[: -len(".gguf")])]
    found = exact or tagged
    if len(found) == 1:
        return found[0]
    few = "several GGUF files fit" if found else "no GGUF file is"
    raise ModelSourceError(f"{hub_id}: {few} {hub_id.file!r} — choose one, such as {_choices(hub_id, whole)}")


def _choices(hub_id: HubId, files: Mapping[str, HubFile]) -> str:
    names = sorted(files)
    more = f" (and {len(names) - 4} more)" if len(names) > 4 else ""
    return ", ".join(f"{hub_id.repository}:{name}" for name in names[:4]) + more
