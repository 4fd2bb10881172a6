"""DecoderConfig: what config.json says about a decoder, in one form for every family.

Settings that change what the model computes and that the runtime does not have are refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgellm.engines.json_file import Fields
from edgellm.errors import UnsupportedModelError

ROTARY_BASE = 10000.0
NORM_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Family:
    """``architecture`` is the name in GGUF. ``permuted``: rows of query and key are reordered there."""

    architecture: str
    permuted: bool = False
    query_key_norms: bool = False


FAMILIES: Mapping[str, Family] = {
    "llama": Family("llama", permuted=True),
    "mistral": Family("llama", permuted=True),
    "qwen2": Family("qwen2"),
    "qwen3": Family("qwen3", query_key_norms=True),
}


VISION_FAMILIES = ("idefics3", "smolvlm")
"""Whose decoder, of one of FAMILIES, is described by ``text_config``."""


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """``kind`` is none, linear or llama3; the other fields of llama3 are None elsewhere."""

    kind: str = "none"
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_context_length: int = 0


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """``sliding_window`` is in tokens, None where every layer sees the whole context. ``tied`` None: not said."""

    model_type: str
    family: Family
    hidden_size: int
    intermediate_size: int
    layer_count: int
    head_count: int
    kv_head_count: int | None
    head_size: int
    context_length: int
    vocab_size: int
    norm_epsilon: float
    rope_base: float
    rope_scaling: RopeScaling
    sliding_window: int | None
    tied: bool | None

    @property
    def usable_context_length(self) -> int:
        """Inside the window sliding attention equals full attention; beyond it the runtime does not go."""
        return min(self.context_length, self.sliding_window or self.context_length)


def decoder_config(path: Path, values: Mapping[str, Any], prefix: str = "") -> DecoderConfig:
    """``prefix`` is where ``values`` are in the file.

    Raises UnsupportedModelError for what the runtime lacks, CheckpointError for what is missing or wrong.
    """
    fields = Fields(path, values, prefix)
    model_type = fields.text("model_type")
    if model_type is None:
        fields.fail("model_type", "is missing")
    family = FAMILIES.get(model_type)
    if family is None:
        supported = FAMILIES if prefix else (*FAMILIES, *VISION_FAMILIES)
        raise UnsupportedModelError(
            f"{path}: {prefix}model_type {model_type!r} is not supported (supported: {', '.join(supported)})"
        )
    _refuse_unsupported(fields)
    head_count = fields.count("num_attention_heads")
    hidden_size = fields.count("hidden_size")
    if not fields.has("head_dim") and hidden_size % head_count:
        fields.fail("num_attention_heads", f"({head_count}) does not divide hidden_size ({hidden_size})")
    head_size = fields.count("head_dim", hidden_size // head_count)
    kv_head_count = fields.count("num_key_value_heads") if fields.has("num_key_value_heads") else None
    if kv_head_count is not None and head_count % kv_head_count:
        fields.fail("num_key_value_heads", f"({kv_head_count}) does not divide num_attention_heads ({head_count})")
    if head_size % 2:
        fields.fail("head_dim", f"({head_size}) is odd: rotary positions need pairs")
    base, scaling = _rope(fields)
    return DecoderConfig(
        model_type=model_type,
        family=family,
        hidden_size=hidden_size,
        intermediate_size=fields.count("intermediate_size"),
        layer_count=fields.count("num_hidden_layers"),
        head_count=head_count,
        kv_head_count=kv_head_count,
        head_size=head_size,
        context_length=fields.count("max_position_embeddings"),
        vocab_size=fields.count("vocab_size"),
        norm_epsilon=fields.number("rms_norm_eps", NORM_EPSILON),
        rope_base=base,
        rope_scaling=scaling,
        sliding_window=_sliding_window(fields, model_type),
        tied=fields.flag("tie_word_embeddings"),
    )


def llama3_frequency_divisors(config: DecoderConfig) -> list[float]:
    """What each pair's frequency is divided by: 1 for short wavelengths, the factor for long ones, between blended."""
    scaling = config.rope_scaling
    divisors = []
    for pair in range(config.head_size // 2):
        wavelength = 2 * math.pi * config.rope_base ** (2 * pair / config.head_size)
        turns = scaling.original_context_length / wavelength
        if turns < scaling.low_frequency_factor:
            divisors.append(scaling.factor)
        elif turns > scaling.high_frequency_factor:
            divisors.append(1.0)
        else:
            share = (turns - scaling.low_frequency_factor) / (
                scaling.high_frequency_factor - scaling.low_frequency_factor
            )
            divisors.append(1.0 / ((1.0 - share) / scaling.factor + share))
    return divisors


def _refuse_unsupported(fields: Fields) -> None:
    if fields.has("quantization_config"):
        method = str(fields.mapping("quantization_config").get("quant_method", "unknown"))[:40]
        raise UnsupportedModelError(
            f"{fields.path}: a checkpoint already quantised ({method}) is not supported — give the original weights"
        )
    activation = fields.text("hidden_act") or "silu"
    if activation not in ("silu", "swish"):
        raise UnsupportedModelError(f"{fields.path}: hidden_act {activation!r} is not supported (supported: silu)")
    parameters = fields.mapping("rope_parameters")
    partial = parameters.get("partial_rotary_factor", fields.values.get("partial_rotary_factor"))
    if partial not in (None, 1, 1.0):
        raise UnsupportedModelError(f"{fields.path}: partial_rotary_factor is not supported")


def _rope(fields: Fields) -> tuple[float, RopeScaling]:
    """Newer checkpoints have ``rope_parameters``, older ones ``rope_scaling`` and ``rope_theta``."""
    name = "rope_parameters" if fields.has("rope_parameters") else "rope_scaling"
    values = fields.mapping(name)
    rope = Fields(fields.path, values, prefix=f"{name}.")
    base = rope.number("rope_theta") if rope.has("rope_theta") else fields.number("rope_theta", ROTARY_BASE)
    kind = rope.text("rope_type") or rope.text("type") or "default"
    if kind in ("default", "none"):
        return base, RopeScaling()
    if kind == "linear":
        return base, RopeScaling("linear", factor=rope.number("factor"))
    if kind == "llama3":
        scaling = RopeScaling(
            "llama3",
            factor=rope.number("factor"),
            low_frequency_factor=rope.number("low_freq_factor"),
            high_frequency_factor=rope.number("high_freq_factor"),
            original_context_length=rope.count("original_max_position_embeddings"),
        )
        if scaling.high_frequency_factor <= scaling.low_frequency_factor:
            rope.fail("high_freq_factor", "is not above low_freq_factor")
        return base, scaling
    raise UnsupportedModelError(
        f"{fields.path}: rope scaling {kind[:40]!r} is not supported (supported: default, linear, llama3)"
    )


def _sliding_window(fields: Fields, model_type: str) -> int | None:
    layer_types = fields.values.get("layer_types")
    if isinstance(layer_types, list):
        unknown = {str(kind)[:40] for kind in layer_types} - {"full_attention", "sliding_attention"}
        if unknown:
            raise UnsupportedModelError(f"{fields.path}: layer type {min(unknown)!r} is not supported")
        if "sliding_attention" not in layer_types:
            return None
    elif model_type.startswith("qwen") and not fields.flag("use_sliding_window"):
        return None
    return fields.count("sliding_window") if fields.has("sliding_window") else None
