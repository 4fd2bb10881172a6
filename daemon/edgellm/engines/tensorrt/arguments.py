"""Arguments: a build profile as NVIDIA's builder takes it on its command line, checked before anything starts.

Lengths, batch and every choice are always passed, because the builder's own defaults are for trials (32 tokens). Values
of None are left to it. All components of a model are built in one invocation.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from edgellm.engines.build_profile import BuildProfile
from edgellm.engines.tensorrt.speculation import METHODS_WITH_DRAFT_CHECKPOINT, NO_METHOD, TREE_BASE_METHODS
from edgellm.errors import ConfigError

DENSE_KINDS = ("auto", "nvfp4-qdq", "fp16")
INT4_GEMM_PLUGIN_VERSIONS = (1, 2)
METHODS_WITH_FULL_VOCABULARY = ("dflash", "jetspec", "dspark", "gemma4_mtp")

# What the builder takes for a value that is not passed, as far as another value is held against it.
BUILDER_DEFAULTS = {
    "min_image_tokens": 4,
    "max_image_tokens": 1024,
    "max_image_tokens_per_image": 512,
    "min_time_steps": 100,
    "max_time_steps": 6000,
    "min_code_len": 1,
    "opt_code_len": 300,
    "max_code_len": 2000,
}
_ORDERED = (
    ("min_image_tokens", "max_image_tokens_per_image", "max_image_tokens"),
    ("min_time_steps", "max_time_steps"),
    ("min_code_len", "opt_code_len", "max_code_len"),
)
_POSITIVE = (
    "max_input_len",
    "max_batch_size",
    "max_kv_cache_capacity",
    "max_verify_tree_size",
    "max_draft_tree_size",
    *BUILDER_DEFAULTS,
)
_VALUES = (
    "spec_type",
    "dense",
    "int4_gemm_plugin_version",
    "max_input_len",
    "max_kv_cache_capacity",
    "max_batch_size",
    "max_lora_rank",
    "max_verify_tree_size",
    "max_draft_tree_size",
    *BUILDER_DEFAULTS,
)
_SWITCHES = ("tree_base", "fp8_embedding")


@dataclass(frozen=True, slots=True)
class BuildFolders:
    """What the builder reads and writes. A reduced vocabulary is a folder with ``vocab_map.safetensors``."""

    model: Path
    engine: Path
    draft: Path | None = None
    reduced_vocab: Path | None = None
    draft_reduced_vocab: Path | None = None
    plugin: Path | None = None


def builder_arguments(profile: BuildProfile, folders: BuildFolders) -> list[str]:
    """Give the argument vector, without the program, of a profile that ``check_profile`` has passed."""
    arguments = ["--model-dir", str(folders.model), "--engine-dir", str(folders.engine), "--components", "all"]
    for name in _VALUES:
        value = getattr(profile, name)
        if value is not None:
            arguments += [_option(name), str(value)]
    arguments += [_option(name) for name in _SWITCHES if getattr(profile, name)]
    paths = {
        "--draft-model-dir": folders.draft,
        "--reduced-vocab-dir": folders.reduced_vocab,
        "--draft-reduced-vocab-dir": folders.draft_reduced_vocab,
        "--plugin-path": folders.plugin,
    }
    for option, path in paths.items():
        if path is not None:
            arguments += [option, str(path)]
    return arguments


def check_profile(profile: BuildProfile, *, has_draft: bool) -> None:
    """Raise ConfigError for what the builder would refuse, or start and fail on, by the names of the profile."""
    for name in _POSITIVE:
        value = getattr(profile, name)
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1, not {value}")
    if profile.max_lora_rank < 0:
        raise ConfigError(f"max_lora_rank must be 0 (no adapters) or more, not {profile.max_lora_rank}")
    if profile.dense not in DENSE_KINDS:
        raise ConfigError(f"dense {profile.dense!r} is not one of {', '.join(DENSE_KINDS)}")
    if profile.int4_gemm_plugin_version not in INT4_GEMM_PLUGIN_VERSIONS:
        raise ConfigError(f"int4_gemm_plugin_version must be 1 or 2, not {profile.int4_gemm_plugin_version}")
    for names in _ORDERED:
        _check_order(profile, names)
    _check_speculation(profile, has_draft=has_draft)


def _check_order(profile: BuildProfile, names: tuple[str, ...]) -> None:
    values = [(name, getattr(profile, name) or BUILDER_DEFAULTS[name]) for name in names]
    for (lower, low), (upper, high) in pairwise(values):
        if low > high:
            defaulted = [name for name in (lower, upper) if getattr(profile, name) is None]
            hint = f"; {defaulted[0]} was not set, and the builder's own is meant" if defaulted else ""
            raise ConfigError(f"{lower} {low} is more than {upper} {high} — set both{hint}")


def _check_speculation(profile: BuildProfile, *, has_draft: bool) -> None:
    method = profile.spec_type
    if method in METHODS_WITH_DRAFT_CHECKPOINT and not has_draft:
        raise ConfigError(f"speculative_config.model: {method} takes its draft from a checkpoint of its own — name it")
    if method not in METHODS_WITH_DRAFT_CHECKPOINT and has_draft:
        raise ConfigError(f"speculative_config.model: spec_type {method} takes no draft checkpoint")
    if profile.tree_base and method not in TREE_BASE_METHODS:
        raise ConfigError(f"tree_base is for {', '.join(sorted(TREE_BASE_METHODS))}, not for spec_type {method}")
    if profile.reduced_vocab_digest is not None and method in METHODS_WITH_FULL_VOCABULARY:
        raise ConfigError(f"reduced_vocab_dir: the base of {method} needs its whole vocabulary")
    if profile.draft_reduced_vocab_digest is not None:
        # It passes the folder on to the base, and then refuses it there.
        raise ConfigError(
            "draft_reduced_vocab_dir: NVIDIA's builder cannot reduce a draft that it builds with its base"
        )
    if profile.fp8_embedding and method != NO_METHOD:
        raise ConfigError(f"fp8_embedding: the draft of {method} shares the base's embedding, which must not be FP8")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
