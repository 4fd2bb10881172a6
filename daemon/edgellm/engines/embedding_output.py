"""EmbeddingOutput: whether a checkpoint was made to embed text, in the one way the native runtime can.

Checkpoints for sentence-transformers say so in ``modules.json`` and the configuration of their pooling; GGUF files in
``pooling_type``. The runtime takes the hidden row of the last token, at length one: any other pooling is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgellm.engines.checkpoint_names import CONFIG_FILE, MODULES_FILE
from edgellm.engines.gguf_file import read_gguf_without_arrays
from edgellm.engines.json_file import read_object, read_text_file
from edgellm.engines.source import ModelSource, SourceKind
from edgellm.errors import CheckpointError

MAX_CONFIG_BYTES = 1 << 20
MAX_SIZE = 1 << 20

_GGUF_POOLINGS = ("none", "mean", "cls", "last", "rank")
_LAST_TOKEN = "lasttoken"  # noqa: S105  # a pooling, no password
_MODULE_KINDS = ("Transformer", "Pooling", "Normalize")


@dataclass(frozen=True, slots=True)
class EmbeddingOutput:
    """``size`` is the length of a vector, 0 for a model that makes none: ``refusal`` may say why.

    ``shorter_sizes`` are further lengths that the model was trained for; with ``any_shorter`` every one is.
    """

    size: int = 0
    shorter_sizes: tuple[int, ...] = ()
    any_shorter: bool = False
    refusal: str = ""

    def allows(self, dimensions: int) -> bool:
        """Whether a vector may be cut to its first ``dimensions`` numbers and mean something."""
        return dimensions == self.size or (
            0 < dimensions < self.size and (self.any_shorter or dimensions in self.shorter_sizes)
        )


def embedding_output(source: ModelSource) -> EmbeddingOutput:
    """Raises CheckpointError naming the file and field that is wrong."""
    if source.kind is SourceKind.GGUF:
        return _of_gguf(source.path)
    modules_path = source.path / MODULES_FILE
    if not modules_path.exists():
        return EmbeddingOutput()
    return _of_modules(source.path, _modules(modules_path))


def _of_gguf(path: Path) -> EmbeddingOutput:
    gguf = read_gguf_without_arrays(path)
    architecture = gguf.require_string("general.architecture")
    pooling = gguf.integer(f"{architecture}.pooling_type")
    if not pooling:
        return EmbeddingOutput()
    name = _GGUF_POOLINGS[pooling] if pooling < len(_GGUF_POOLINGS) else str(pooling)
    if name != "last":
        return _other_pooling(name)
    return EmbeddingOutput(gguf.require_integer(f"{architecture}.embedding_length", 1, MAX_SIZE))


def _modules(path: Path) -> list[dict[str, Any]]:
    try:
        modules = json.loads(read_text_file(path, MAX_CONFIG_BYTES))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON ({error})") from None
    if not isinstance(modules, list) or not all(isinstance(each, dict) for each in modules):
        raise CheckpointError(f"{path}: not an array of modules")
    return modules


def _of_modules(folder: Path, modules: Sequence[dict[str, Any]]) -> EmbeddingOutput:
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    if not kinds or kinds[0] != "Transformer" or "Pooling" not in kinds:
        return EmbeddingOutput()
    unknown = [kind for kind in kinds if kind not in _MODULE_KINDS]
    if unknown or len(set(kinds)) != len(kinds):
        return EmbeddingOutput(refusal=f"this runtime has no module {(unknown or kinds)[0]!r} of its {MODULES_FILE}")
    pooling_folder = modules[kinds.index("Pooling")].get("path")
    # The name comes from the checkpoint and must not lead out of it.
    if (
        not isinstance(pooling_folder, str)
        or pooling_folder in ("", "..")
        or Path(pooling_folder).name != pooling_folder
    ):
        raise CheckpointError(f"{folder / MODULES_FILE}: path of the pooling is not the name of a folder")
    path = folder / pooling_folder / CONFIG_FILE
    if not path.exists():
        return EmbeddingOutput(refusal=f"its {pooling_folder}/{CONFIG_FILE} is missing")
    config = read_object(path, MAX_CONFIG_BYTES)
    modes = _pooling_modes(config)
    if modes != [_LAST_TOKEN]:
        return _other_pooling(" and ".join(modes) or "not named")
    size = config.get("word_embedding_dimension", config.get("embedding_dimension"))
    if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= MAX_SIZE:
        raise CheckpointError(f"{path}: word_embedding_dimension is not a number from 1 to {MAX_SIZE}")
    return _with_shorter_sizes(folder / CONFIG_FILE, size)


def _pooling_modes(config: dict[str, Any]) -> list[str]:
    """By the one field of newer files, or by the flags of older ones."""
    mode = config.get("pooling_mode")
    if isinstance(mode, str):
        return [mode]
    if isinstance(mode, list):
        return [str(each) for each in mode]
    prefix = "pooling_mode_"
    return [name.removeprefix(prefix) for name, value in config.items() if name.startswith(prefix) and value is True]


def _with_shorter_sizes(path: Path, size: int) -> EmbeddingOutput:
    """A vector may only be cut where the checkpoint says that it was trained for it."""
    config = read_object(path)
    sizes = config.get("matryoshka_dimensions")
    if sizes is None:
        return EmbeddingOutput(size, any_shorter=config.get("is_matryoshka") is True)
    if not isinstance(sizes, list) or not all(type(each) is int and 0 < each <= size for each in sizes):
        raise CheckpointError(f"{path}: matryoshka_dimensions is not an array of numbers from 1 to {size}")
    return EmbeddingOutput(size, tuple(sorted(sizes)))


def _other_pooling(name: str) -> EmbeddingOutput:
    return EmbeddingOutput(refusal=f"its pooling is {name}, and this runtime takes the last token")
