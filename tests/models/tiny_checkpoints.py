"""Tiny random checkpoints in Hugging Face form, of every family and option that the native runtime runs.

``write_checkpoint(folder, VARIANTS["qwen3"])`` gives a directory like one from a hub. The weights are random but
scaled so that logits spread, attention is uneven and every tensor matters: an error in any part moves the result.
Run as ``python -m tests.models.tiny_checkpoints FOLDER [VARIANT…]`` it writes checkpoints for a look by hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.models.safetensors_writer import FloatArray, write_sharded
from tests.models.tiny_tokenizer import BEGIN_OF_TEXT, END_OF_TEXT, TURN_END, TinyTokenizer

LLAMA3_SCALING: Mapping[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR_SCALING: Mapping[str, Any] = {"rope_type": "linear", "factor": 4.0}

CLASS_NAMES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
STORAGE_CONFIG_NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class TinyModel:
    """Shape and options of one checkpoint. Row lengths are multiples of 32, so that block quantisation applies.

    ``padding_rows`` are embedding rows beyond the tokenizer's tokens. ``modern_config`` writes rope settings and
    the storage type under the names of transformers 5. ``config_overrides`` go into config.json last, None removes.
    """

    family: str = "llama"
    hidden_size: int = 128
    intermediate_size: int = 192
    layer_count: int = 3
    head_count: int = 4
    kv_head_count: int = 2
    head_size: int = 32
    context_length: int = 1024
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None
    norm_epsilon: float = 1e-5
    tied: bool = True
    dtype: str = "f32"
    seed: int = 0
    shard_count: int = 1
    padding_rows: int = 0
    modern_config: bool = False
    attention_bias: bool = False
    tokenizer: TinyTokenizer = field(default_factory=TinyTokenizer)
    config_overrides: Mapping[str, Any] = field(default_factory=dict)
    generation_overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def token_count(self) -> int:
        return len(self.tokenizer.vocabulary()[0])

    @property
    def vocab_size(self) -> int:
        return self.token_count + self.padding_rows


QWEN_TOKENIZER = TinyTokenizer(pre_tokenizer="qwen2", specials_first=False)
QWEN3_TOKENIZER = replace(QWEN_TOKENIZER, plain_added_tokens=("<think>", "</think>", "<tool_call>", "</tool_call>"))
LLAMA3_TOKENIZER = TinyTokenizer(pre_tokenizer="llama3", specials_first=False, adds_bos=True)

_LLAMA = TinyModel(tokenizer=TinyTokenizer(pre_tokenizer="smollm"))
_QWEN2 = TinyModel(
    family="qwen2", norm_epsilon=1e-6, rope_theta=1e6, attention_bias=True, padding_rows=16, tokenizer=QWEN_TOKENIZER
)
_QWEN3 = TinyModel(
    family="qwen3",
    hidden_size=96,
    head_count=4,
    kv_head_count=2,
    head_size=32,
    norm_epsilon=1e-6,
    rope_theta=1e6,
    padding_rows=16,
    tokenizer=QWEN3_TOKENIZER,
)

VARIANTS: Mapping[str, TinyModel] = {
    "llama": _LLAMA,
    "llama-untied": replace(_LLAMA, tied=False, seed=1),
    "llama-llama3-rope": replace(
        _LLAMA,
        rope_theta=500000.0,
        rope_scaling=LLAMA3_SCALING,
        tied=False,
        seed=2,
        tokenizer=LLAMA3_TOKENIZER,
    ),
    "llama-linear-rope": replace(_LLAMA, rope_scaling=LINEAR_SCALING, seed=3),
    "llama-modern-config": replace(
        _LLAMA,
        rope_theta=500000.0,
        rope_scaling=LLAMA3_SCALING,
        modern_config=True,
        seed=4,
        tokenizer=LLAMA3_TOKENIZER,
    ),
    "llama-heads-6-2": replace(_LLAMA, hidden_size=96, head_count=6, kv_head_count=2, head_size=16, seed=5),
    "llama-multi-query": replace(_LLAMA, hidden_size=64, head_count=4, kv_head_count=1, head_size=16, seed=6),
    "llama-full-heads": replace(_LLAMA, hidden_size=64, head_count=2, kv_head_count=2, head_size=32, seed=7),
    "llama-head-64": replace(_LLAMA, head_count=3, kv_head_count=1, head_size=64, hidden_size=192, seed=8),
    "llama-f16": replace(_LLAMA, dtype="f16", seed=9),
    "llama-bf16-sharded": replace(_LLAMA, dtype="bf16", shard_count=2, seed=10),
    "mistral": replace(
        _LLAMA,
        family="mistral",
        hidden_size=96,
        head_count=4,
        kv_head_count=2,
        head_size=32,
        rope_theta=1e6,
        tied=False,
        seed=11,
        tokenizer=TinyTokenizer(pre_tokenizer="gpt2", specials_first=True),
    ),
    "qwen2": replace(_QWEN2, seed=12),
    "qwen2-untied-bf16": replace(_QWEN2, tied=False, dtype="bf16", modern_config=True, seed=13),
    "qwen2-heads-6-2": replace(_QWEN2, hidden_size=96, head_count=6, kv_head_count=2, head_size=16, seed=14),
    "qwen3": replace(_QWEN3, seed=15),
    "qwen3-untied": replace(_QWEN3, hidden_size=64, head_size=64, tied=False, modern_config=True, seed=16),
    "qwen3-multi-query-bf16": replace(_QWEN3, kv_head_count=1, dtype="bf16", seed=17),
    "long-context": replace(
        _LLAMA, hidden_size=64, head_count=2, kv_head_count=1, context_length=16384, intermediate_size=96, seed=18
    ),
}


def config_json(model: TinyModel) -> dict[str, Any]:
    ids = model.tokenizer.vocabulary()[0]
    config: dict[str, Any] = {
        "architectures": [CLASS_NAMES[model.family]],
        "model_type": model.family,
        "hidden_act": "silu",
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_hidden_layers": model.layer_count,
        "num_attention_heads": model.head_count,
        "num_key_value_heads": model.kv_head_count,
        "max_position_embeddings": model.context_length,
        "rms_norm_eps": model.norm_epsilon,
        "tie_word_embeddings": model.tied,
        "vocab_size": model.vocab_size,
        "initializer_range": 0.02,
        "attention_dropout": 0.0,
        "use_cache": True,
        "bos_token_id": ids.get(BEGIN_OF_TEXT, ids[END_OF_TEXT]),
        "eos_token_id": ids[TURN_END],
        "transformers_version": "5.0.0" if model.modern_config else "4.46.0",
    }
    if model.family == "qwen3" or model.head_size * model.head_count != model.hidden_size:
        config["head_dim"] = model.head_size
    if model.family in ("llama", "qwen3"):
        config["attention_bias"] = model.attention_bias
    if model.family == "llama":
        config["mlp_bias"] = False
    if model.family in ("qwen2", "qwen3"):
        config |= {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": model.layer_count}
    if model.family == "mistral":
        config["sliding_window"] = None
    if model.modern_config:
        config["dtype"] = STORAGE_CONFIG_NAMES[model.dtype]
        config["rope_parameters"] = {
            "rope_type": "default",
            **(model.rope_scaling or {}),
            "rope_theta": model.rope_theta,
        }
    else:
        config["torch_dtype"] = STORAGE_CONFIG_NAMES[model.dtype]
        config["rope_theta"] = model.rope_theta
        config["rope_scaling"] = dict(model.rope_scaling) if model.rope_scaling else None
    config |= model.config_overrides
    return {key: value for key, value in config.items() if key not in model.config_overrides or value is not None}


def make_weights(model: TinyModel) -> dict[str, FloatArray]:
    """Weights by their Hugging Face names, before rounding to the storage type. The same seed gives the same ones."""
    random = np.random.Generator(np.random.PCG64(model.seed))

    def normal(rows: int, columns: int, gain: float) -> FloatArray:
        return (random.standard_normal((rows, columns)) * (gain / np.sqrt(columns))).astype(np.float32)

    def vector(size: int, centre: float, spread: float) -> FloatArray:
        return (centre + spread * random.standard_normal(size)).astype(np.float32)

    hidden, inner = model.hidden_size, model.intermediate_size
    query_rows = model.head_count * model.head_size
    kv_rows = model.kv_head_count * model.head_size
    weights: dict[str, FloatArray] = {"model.embed_tokens.weight": normal(model.vocab_size, hidden, 3.0)}
    for layer in range(model.layer_count):
        prefix = f"model.layers.{layer}."
        weights[prefix + "input_layernorm.weight"] = vector(hidden, 1.0, 0.2)
        for name, rows, gain in (("q", query_rows, 1.5), ("k", kv_rows, 1.5), ("v", kv_rows, 1.0)):
            weights[f"{prefix}self_attn.{name}_proj.weight"] = normal(rows, hidden, gain)
            if model.attention_bias:
                weights[f"{prefix}self_attn.{name}_proj.bias"] = vector(rows, 0.0, 0.5)
        weights[prefix + "self_attn.o_proj.weight"] = normal(hidden, query_rows, 1.0)
        if model.attention_bias and model.family != "qwen2":
            weights[prefix + "self_attn.o_proj.bias"] = vector(hidden, 0.0, 0.5)
        if model.family == "qwen3":
            weights[prefix + "self_attn.q_norm.weight"] = vector(model.head_size, 1.3, 0.3)
            weights[prefix + "self_attn.k_norm.weight"] = vector(model.head_size, 1.3, 0.3)
        weights[prefix + "post_attention_layernorm.weight"] = vector(hidden, 1.0, 0.2)
        weights[prefix + "mlp.gate_proj.weight"] = normal(inner, hidden, 1.2)
        weights[prefix + "mlp.up_proj.weight"] = normal(inner, hidden, 1.2)
        weights[prefix + "mlp.down_proj.weight"] = normal(hidden, inner, 1.2)
    weights["model.norm.weight"] = vector(hidden, 1.0, 0.2)
    if not model.tied:
        weights["lm_head.weight"] = normal(model.vocab_size, hidden, 3.0)
    return weights


def write_checkpoint(folder: Path, model: TinyModel) -> Path:
    """Write the checkpoint directory and return it. Existing files of the same names are overwritten."""
    folder.mkdir(parents=True, exist_ok=True)
    config = config_json(model)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    generation = {
        "bos_token_id": config.get("bos_token_id"),
        "eos_token_id": [model.tokenizer.id_of(TURN_END), model.tokenizer.id_of(END_OF_TEXT)],
        "transformers_version": config.get("transformers_version"),
        **model.generation_overrides,
    }
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2))
    model.tokenizer.write(folder, model.context_length)
    write_sharded(folder, make_weights(model), model.dtype, model.shard_count)
    return folder


def main(arguments: list[str]) -> int:
    if not arguments or any(name not in VARIANTS for name in arguments[1:]):
        print(f"usage: tiny_checkpoints FOLDER [VARIANT…]; variants: {', '.join(VARIANTS)}", file=sys.stderr)
        return 64
    for name in arguments[1:] or VARIANTS:
        print(write_checkpoint(Path(arguments[0]) / name, VARIANTS[name]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
