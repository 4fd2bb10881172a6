"""BuildProfile: everything a build can be asked for, and which of it decides the files of each runtime's bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from edgellm.errors import ConfigError

RuntimeKind = Literal["native", "tensorrt"]
ProfileValue = str | int | bool | None

QUANTISATIONS = ("auto", "f32", "f16", "q8_0", "q4_0", "q4_1")
AS_IS = "as-is"
"""What auto comes to where the source decides: weights of a GGUF file are served as they are."""
SPEC_TYPES = ("none", "eagle3", "mtp", "dflash", "jetspec", "dspark", "gemma4_mtp")
"""Methods that an engine can be compiled for. ``gemma4_mtp`` is mtp with a draft checkpoint of its own."""

KEYED_BY_NATIVE = ("quantisation",)
"""A native bundle serves every length and batch: those are options of the start, bounded by the model itself."""

NOT_KEYED_BY_TENSORRT = ("quantisation",)
"""Precision of a TensorRT engine comes with its checkpoint."""


@dataclass(frozen=True, slots=True)
class BuildProfile:
    """Lengths, image and tree sizes are tokens. None leaves a value to the builder's own default.

    ``tree_base`` compiles the base engine for a branching tree. ``max_lora_rank`` 0 builds without adapters.
    ``reduced_vocab_digest`` is the SHA-256 of a reduced vocabulary, whose folder the builder is told apart.
    """

    max_input_len: int = 4096
    max_batch_size: int = 1
    max_kv_cache_capacity: int = 8192
    quantisation: str = "auto"
    spec_type: str = "none"
    tree_base: bool = False
    max_verify_tree_size: int | None = None
    max_draft_tree_size: int | None = None
    min_image_tokens: int | None = None
    max_image_tokens: int | None = None
    max_image_tokens_per_image: int | None = None
    min_time_steps: int | None = None
    max_time_steps: int | None = None
    min_code_len: int | None = None
    opt_code_len: int | None = None
    max_code_len: int | None = None
    max_lora_rank: int = 0
    dense: str = "auto"
    int4_gemm_plugin_version: int = 2
    fp8_embedding: bool = False
    reduced_vocab_digest: str | None = None
    draft_reduced_vocab_digest: str | None = None

    def __post_init__(self) -> None:
        if self.quantisation not in (*QUANTISATIONS, AS_IS):
            raise ConfigError(f"quantisation {self.quantisation!r} is not one of {', '.join(QUANTISATIONS)}")
        if self.spec_type not in SPEC_TYPES:
            raise ConfigError(f"spec_type {self.spec_type!r} is not one of {', '.join(SPEC_TYPES)}")

    def keyed(self, runtime: RuntimeKind) -> Mapping[str, ProfileValue]:
        """The values that decide the files of a bundle of ``runtime``, by name."""
        names = [entry.name for entry in fields(self)]
        if runtime == "native":
            names = [name for name in names if name in KEYED_BY_NATIVE]
        else:
            names = [name for name in names if name not in NOT_KEYED_BY_TENSORRT]
        return {name: getattr(self, name) for name in names}
