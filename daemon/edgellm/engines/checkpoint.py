"""Checkpoint: a directory in Hugging Face form, its weights found over all shards before any is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgellm.engines.checkpoint_names import (
    CONFIG_FILE,
    INDEX_FILE,
    MAX_SMALL_FILE_BYTES,
    SINGLE_FILE,
    TOKENIZER_FILE,
)
from edgellm.engines.json_file import parse_object, read_object, read_text_file
from edgellm.engines.safetensors_file import SafetensorsFile
from edgellm.engines.safetensors_header import StoredTensor
from edgellm.errors import CheckpointError, ModelSourceError

MAX_SHARDS = 4096


@dataclass(frozen=True, slots=True)
class LocatedTensor:
    file: SafetensorsFile
    stored: StoredTensor


class Checkpoint:
    """Raises CheckpointError or ModelSourceError when made from a directory that is damaged or incomplete."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = read_object(directory / CONFIG_FILE, MAX_SMALL_FILE_BYTES)
        self.files = [_open(path) for path in _weight_files(directory)]
        self.tensors: Mapping[str, LocatedTensor] = _merged(self.files)
        _check_index(directory, self.tensors)

    def tokenizer_json(self) -> str:
        return read_text_file(self.directory / TOKENIZER_FILE)

    def optional_object(self, name: str) -> dict[str, Any]:
        """The JSON file of that name, empty when the checkpoint has none."""
        path = self.directory / name
        return parse_object(path, read_text_file(path, MAX_SMALL_FILE_BYTES)) if path.exists() else {}

    def optional_text(self, name: str) -> str | None:
        path = self.directory / name
        return read_text_file(path, MAX_SMALL_FILE_BYTES) if path.exists() else None


def _weight_files(directory: Path) -> list[Path]:
    """The files of the index; without one, ``model.safetensors``, or else every safetensors file there is."""
    index_path = directory / INDEX_FILE
    if not index_path.exists():
        single = directory / SINGLE_FILE
        paths = [single] if single.exists() else sorted(directory.glob("*.safetensors"))
        if not paths:
            raise ModelSourceError(f"{directory}: no weights (no .safetensors file)")
    else:
        names = set(_weight_map(index_path).values())
        for name in names:
            if Path(name).name != name or not name.endswith(".safetensors"):
                raise CheckpointError(f"{index_path}: weight_map names {name[:200]!r}, which is no weights file here")
        paths = [directory / name for name in sorted(names)]
    if len(paths) > MAX_SHARDS:
        raise CheckpointError(f"{directory}: {len(paths)} weights files are more than the {MAX_SHARDS} that are read")
    return paths


def _weight_map(index_path: Path) -> Mapping[str, str]:
    weight_map = read_object(index_path, MAX_SMALL_FILE_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise CheckpointError(f"{index_path}: weight_map is not an object of file names")
    return weight_map


def _open(path: Path) -> SafetensorsFile:
    try:
        return SafetensorsFile(path)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None


def _merged(files: list[SafetensorsFile]) -> dict[str, LocatedTensor]:
    tensors: dict[str, LocatedTensor] = {}
    for file in files:
        for name, stored in file.tensors.items():
            if name in tensors:
                raise CheckpointError(
                    f"{file.path}: tensor {name[:200]} is also in {tensors[name].file.path.name}: which one counts?"
                )
            tensors[name] = LocatedTensor(file, stored)
    return tensors


def _check_index(directory: Path, tensors: Mapping[str, LocatedTensor]) -> None:
    index_path = directory / INDEX_FILE
    if not index_path.exists():
        return
    for name, file_name in _weight_map(index_path).items():
        if name not in tensors or tensors[name].file.path.name != file_name:
            raise CheckpointError(f"{directory / file_name}: tensor {name[:200]} is missing, though the index lists it")
