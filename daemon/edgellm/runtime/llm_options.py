"""LLMOptions: the arguments of LLM, validated once, and what they mean on the runtime that was chosen."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from edgellm.config.environment import parse_json
from edgellm.engines.store import BAKED_ROOT
from edgellm.engines.tensorrt.speculation import (
    METHODS_WITH_DRAFT_CHECKPOINT,
    MTP_WITH_DRAFT,
    NO_METHOD,
    SPECULATIVE_METHODS,
)
from edgellm.errors import ConfigError
from edgellm.runtime.length_limits import LengthLimits
from edgellm.runtime.speculative import SpeculativeLaunch

_log = logging.getLogger(__name__)

RUNTIMES = ("auto", "native", "tensorrt")

DEFAULT_MAX_INPUT_LEN = 4096
DEFAULT_MAX_KV_CACHE_CAPACITY = 8192
DEFAULT_IN_FLIGHT_SEQUENCES = 4
DEFAULT_ENGINE_CACHE_GB = 50.0
DEFAULT_PORT = 8000
DEFAULT_QUEUED_REQUESTS = 16
DEFAULT_QUEUE_TIMEOUT_SECONDS = 600.0
DEFAULT_READ_ONLY_ENGINE_DIRS = (str(BAKED_ROOT),)
BYTES_PER_GB = 2**30
MAX_BATCH_SIZE = 256
MAX_THREADS = 1024

_COUNTS = (
    "max_input_len",
    "max_batch_size",
    "max_kv_cache_capacity",
    "max_image_tokens",
    "max_image_tokens_per_image",
    "draft_top_k",
    "draft_step",
    "verify_tree_size",
    "max_verify_tree_size",
    "max_draft_tree_size",
)
_SPECULATIVE_COUNTS = _COUNTS[5:]
_IMAGE_COUNTS = ("max_image_tokens", "max_image_tokens_per_image")


@dataclass(frozen=True, slots=True)
class ContextCacheConfig:
    """The contract's ContextCacheConfig; ``enabled`` None leaves it to the runtime's default."""

    enabled: bool | None = None
    max_records: int = 1024
    recurrent_snapshot_pool_bytes: int = 0
    partial_kv_snapshot_pool_bytes: int = 0

    def __post_init__(self) -> None:
        if self.enabled is not None and not isinstance(self.enabled, bool):
            raise ConfigError("enable_context_reuse must be true or false")
        _check_count("context_cache_max_records", self.max_records, lowest=1)
        _check_count("context_cache_recurrent_snapshot_pool_bytes", self.recurrent_snapshot_pool_bytes, lowest=0)
        _check_count("context_cache_partial_kv_snapshot_pool_bytes", self.partial_kv_snapshot_pool_bytes, lowest=0)

    @classmethod
    def parse(cls, value: ContextCacheConfig | Mapping[str, Any]) -> ContextCacheConfig:
        return value if isinstance(value, cls) else _from_mapping(cls, value, "context_cache_config")


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What an engine is built for; set values win over the scalar arguments of the same name."""

    spec_type: str = "none"
    draft_model_dir: str = ""
    max_input_len: int | None = None
    max_kv_cache_capacity: int | None = None
    max_batch_size: int | None = None
    max_verify_tree_size: int | None = None
    max_draft_tree_size: int | None = None
    max_image_tokens: int | None = None
    max_image_tokens_per_image: int | None = None
    max_lora_rank: int | None = None
    reduced_vocab_dir: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "draft_model_dir", path_text(self.draft_model_dir))
        object.__setattr__(self, "reduced_vocab_dir", path_text(self.reduced_vocab_dir))

    @classmethod
    def parse(cls, value: BuildOptions | Mapping[str, Any]) -> BuildOptions:
        return value if isinstance(value, cls) else _from_mapping(cls, value, "build_options")


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """``method`` names how drafts are made, ``model`` the draft checkpoint."""

    method: str = "none"
    model: str = ""
    num_speculative_tokens: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", path_text(self.model))
        if self.method not in ("none", *SPECULATIVE_METHODS):
            raise ConfigError(f"speculative_config.method must be one of {', '.join(SPECULATIVE_METHODS)}")
        if self.num_speculative_tokens is not None:
            _check_count("speculative_config.num_speculative_tokens", self.num_speculative_tokens, lowest=1)

    @classmethod
    def parse(cls, value: SpeculativeConfig | Mapping[str, Any] | str) -> SpeculativeConfig:
        if isinstance(value, str):
            value = parse_json(value, "speculative_config")
        return value if isinstance(value, cls) else _from_mapping(cls, value, "speculative_config")


@dataclass(frozen=True, slots=True)
class RuntimeShape:
    """How a runtime is loaded: what the options mean once the runtime and the model's own bounds are known."""

    in_flight_batching: bool
    max_batch_size: int
    limits: LengthLimits
    context_cache: ContextCacheConfig


@dataclass(frozen=True, slots=True)
class LLMOptions:
    """Lengths are tokens. None leaves a value to the default of the runtime that is chosen."""

    model: str
    cache_dir: str = ""
    runtime: str = "auto"
    executor: str = "auto"
    threads: int | None = None
    quantisation: str = "auto"
    max_input_len: int | None = None
    max_batch_size: int | None = None
    max_kv_cache_capacity: int | None = None
    enable_in_flight_batching: bool | None = None
    context_cache: ContextCacheConfig = field(default_factory=ContextCacheConfig)
    speculative: SpeculativeConfig = field(default_factory=SpeculativeConfig)
    max_image_tokens: int | None = None
    max_image_tokens_per_image: int | None = None
    max_lora_rank: int | None = None
    reduced_vocab_dir: str | None = None
    draft_top_k: int | None = None
    draft_step: int | None = None
    verify_tree_size: int | None = None
    max_verify_tree_size: int | None = None
    max_draft_tree_size: int | None = None
    engine_cache_max_size_gb: float = DEFAULT_ENGINE_CACHE_GB
    clear_engine_cache: bool = False
    build_on_start: bool = True
    read_only_engine_dirs: tuple[str, ...] = DEFAULT_READ_ONLY_ENGINE_DIRS

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model.strip():
            raise ConfigError("model must name a checkpoint: a catalogue name, a GGUF file or a checkpoint folder")
        if self.runtime not in RUNTIMES:
            raise ConfigError(f"runtime must be one of {', '.join(RUNTIMES)}")
        for name in ("cache_dir", "executor", "quantisation"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"{name} must be a string")
        for name in _COUNTS:
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name), lowest=1)
        if self.max_lora_rank is not None:
            _check_count("max_lora_rank", self.max_lora_rank, lowest=0)
        folder = self.reduced_vocab_dir
        if folder is not None and (not isinstance(folder, str) or not folder):
            raise ConfigError("reduced_vocab_dir must be a folder")
        if self.max_batch_size is not None and self.max_batch_size > MAX_BATCH_SIZE:
            raise ConfigError(f"max_batch_size must be at most {MAX_BATCH_SIZE}")
        if self.threads is not None:
            _check_count("threads", self.threads, lowest=1)
            if self.threads > MAX_THREADS:
                raise ConfigError(f"threads must be at most {MAX_THREADS}; leave it out to let edgellm choose")
        if self.enable_in_flight_batching is not None and not isinstance(self.enable_in_flight_batching, bool):
            raise ConfigError("enable_in_flight_batching must be true or false")
        for name in ("clear_engine_cache", "build_on_start"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} must be true or false")
        if not all(isinstance(folder, str) and folder for folder in self.read_only_engine_dirs):
            raise ConfigError("read_only_engine_dirs must be a list of folders")
        _check_engine_cache_size(self.engine_cache_max_size_gb)

    @property
    def engine_cache_max_size_bytes(self) -> int:
        return int(self.engine_cache_max_size_gb * BYTES_PER_GB)

    def with_build_options(self, build: BuildOptions) -> LLMOptions:
        """Let the build options' set values win; an explicit speculative config keeps its method and draft."""
        names = [entry.name for entry in fields(build) if entry.name not in ("spec_type", "draft_model_dir")]
        changes: dict[str, Any] = {name: getattr(build, name) for name in names if getattr(build, name) is not None}
        if self.speculative.method == NO_METHOD and build.spec_type != NO_METHOD:
            # What an engine is compiled for has one more name than what can be asked for.
            method = "mtp" if build.spec_type == MTP_WITH_DRAFT else build.spec_type
            changes["speculative"] = replace(self.speculative, method=method, model=build.draft_model_dir)
        return replace(self, **changes)

    def refuse_unsupported(self, runtime_kind: str) -> None:
        """Raise ConfigError for what the chosen runtime cannot do, by the argument's name and with the reason."""
        if runtime_kind == "tensorrt":
            self._refuse_on_tensorrt()
            return
        if self.speculative.method != NO_METHOD:
            raise ConfigError(
                f"speculative_config: the native runtime has no speculative decoding ({self.speculative.method})"
            )
        for name in _SPECULATIVE_COUNTS:
            if getattr(self, name) is not None:
                raise ConfigError(f"{name}: the native runtime has no speculative decoding")
        for name in _IMAGE_COUNTS:
            if getattr(self, name) is not None:
                raise ConfigError(f"{name}: the native runtime takes as many image tokens as a prompt may have")
        if self.max_lora_rank:
            raise ConfigError("max_lora_rank: the native runtime takes no adapters")
        if self.reduced_vocab_dir is not None:
            raise ConfigError("reduced_vocab_dir: the native runtime keeps the whole vocabulary")

    def _refuse_on_tensorrt(self) -> None:
        if self.quantisation != "auto":
            raise ConfigError(
                "quantisation: TensorRT engines have the precision of their checkpoint — leave it at auto"
            )
        if self.executor != "auto":
            raise ConfigError("executor: this is an option of the native runtime")
        if self.threads is not None and self.runtime == "tensorrt":  # on auto it is for the runtime that may be
            raise ConfigError("threads: this is an option of the native runtime")
        method = self.speculative.method
        if method in METHODS_WITH_DRAFT_CHECKPOINT and not self.speculative.model:
            raise ConfigError(
                f"speculative_config.model: {method} takes its draft from a checkpoint of its own — name it"
            )
        if method != NO_METHOD and self.enable_in_flight_batching:
            raise ConfigError(
                f"enable_in_flight_batching: speculative decoding ({method}) has none — start without one of them"
            )
        for name in _SPECULATIVE_COUNTS:
            if method == NO_METHOD and getattr(self, name) is not None:
                _log.warning("%s has no effect without a method in speculative_config", name)

    @property
    def speculative_launch(self) -> SpeculativeLaunch:
        return SpeculativeLaunch(
            self.speculative.method,
            self.speculative.num_speculative_tokens,
            self.draft_top_k,
            self.draft_step,
            self.verify_tree_size,
        )

    def shape(self, runtime_kind: str, context_length: int) -> RuntimeShape:
        """Resolve defaults: in-flight batching and context reuse are on for native, opt-in for TensorRT."""
        native = runtime_kind == "native"
        in_flight = native if self.enable_in_flight_batching is None else self.enable_in_flight_batching
        reuse = native if self.context_cache.enabled is None else self.context_cache.enabled
        batch = self.max_batch_size or (DEFAULT_IN_FLIGHT_SEQUENCES if native and in_flight else 1)
        capacity = _bounded(
            "max_kv_cache_capacity", self.max_kv_cache_capacity, DEFAULT_MAX_KV_CACHE_CAPACITY, context_length
        )
        longest_input = _bounded("max_input_len", self.max_input_len, DEFAULT_MAX_INPUT_LEN, context_length)
        return RuntimeShape(
            in_flight_batching=in_flight,
            max_batch_size=batch,
            limits=LengthLimits(min(longest_input, capacity), capacity),
            context_cache=replace(self.context_cache, enabled=reuse),
        )


def path_text(value: Any) -> Any:
    """A path as the text that options hold; anything else as it is, for its own check to refuse."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    return os.fsdecode(path) if isinstance(path, bytes) and path is not value else path


def _bounded(name: str, asked: int | None, default: int, bound: int) -> int:
    if asked is not None and asked > bound:
        _log.warning("%s %d is more than the model takes; using %d", name, asked, bound)
    return min(asked or default, bound)


def _check_count(name: str, value: object, *, lowest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise ConfigError(f"{name} must be an integer of at least {lowest}")


def _check_engine_cache_size(size_gb: object) -> None:
    if isinstance(size_gb, bool) or not isinstance(size_gb, (int, float)) or not math.isfinite(size_gb) or size_gb <= 0:
        raise ConfigError("engine_cache_max_size_gb must be a finite number above 0")


def _from_mapping(cls: Any, value: object, name: str) -> Any:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} must be an object")
    known = {entry.name for entry in fields(cls)}
    for key in value:
        if key not in known:
            raise ConfigError(f"{name} has no {str(key)[:64]!r}; it takes {', '.join(sorted(known))}")
    return cls(**value)
