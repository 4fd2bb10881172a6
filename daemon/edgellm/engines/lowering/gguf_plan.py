"""A GGUF file becomes a bundle: its tensors as they are, its tokenizer and template as files of their own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from edgellm.engines.build_profile import AS_IS
from edgellm.engines.bundle import (
    CHAT_TEMPLATE_FILE,
    GENERATION_CONFIG_FILE,
    MODEL_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    Bundle,
)
from edgellm.engines.checkpoint_digest import checkpoint_digest
from edgellm.engines.gguf_file import GgufFile, read_gguf
from edgellm.engines.gguf_model import model_shape, shared_embedding_bytes
from edgellm.engines.gguf_placement import place_file
from edgellm.engines.lowering.plan import describe_bundle, write_json, write_text
from edgellm.engines.progress import ProgressCallback
from edgellm.engines.resources.native_memory import NativeShape
from edgellm.engines.source import ModelSource
from edgellm.engines.tokenizer_json import tokenizer_files
from edgellm.errors import CheckpointError, ConfigError, ModelSourceError

CHAT_TEMPLATE_KEY = "tokenizer.chat_template"
# What a file recommends for sampling, by the names that generation_config.json has for it.
SAMPLING_KEYS = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}


class GgufPlan:
    """The header is read and checked at once; tensors are not touched before ``write``."""

    def __init__(self, source: ModelSource, quantisation: str) -> None:
        if quantisation not in ("auto", AS_IS):
            raise ConfigError(
                f"quantisation {quantisation!r} applies to safetensors checkpoints; the weights of a GGUF file are "
                "served as they are — leave quantisation at auto"
            )
        self._source = source
        self.quantisation = AS_IS
        try:
            self._gguf = read_gguf(source.path)
            self._shape = model_shape(self._gguf)
            self.checkpoint_digest = checkpoint_digest(source.path)
        except OSError as error:
            raise ModelSourceError(f"{source.path}: {error.strerror}") from None
        self.output_bytes = self._gguf.size_bytes

    @property
    def runtime_shape(self) -> NativeShape:
        shape = self._shape
        return NativeShape(
            self.output_bytes,
            shape.layer_count,
            shape.kv_head_count,
            shape.head_size,
            shape.vocab_size,
            shape.context_length,
            shared_embedding_bytes=shared_embedding_bytes(self._gguf),
        )

    def write(self, directory: Path, on_progress: ProgressCallback) -> Bundle:
        # The cheap parts first: what they refuse should not cost a copy of the weights.
        files = tokenizer_files(self._gguf)
        template = self._gguf.string(CHAT_TEMPLATE_KEY)
        write_json(directory / TOKENIZER_FILE, files.tokenizer)
        write_json(directory / TOKENIZER_CONFIG_FILE, files.config)
        if template:
            write_text(directory / CHAT_TEMPLATE_FILE, template)
        sampling = _recommended_sampling(self._gguf)
        if sampling:
            write_json(directory / GENERATION_CONFIG_FILE, sampling)
        place_file(self._source.path, directory / MODEL_FILE, on_progress)
        return describe_bundle(directory, self._source, self._shape, self._shape.architecture, self.checkpoint_digest)


def _recommended_sampling(gguf: GgufFile) -> dict[str, Any]:
    sampling: dict[str, Any] = {}
    for name, key in SAMPLING_KEYS.items():
        value = gguf.metadata.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise CheckpointError(f"{gguf.path}: {key} is not a number")
        sampling[name] = value
    return sampling
