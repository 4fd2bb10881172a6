"""Reads a GGUF file of a supported family for the reference: weights dequantised, under their Hugging Face names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tests.models.tiny_gguf import LAYER_NAMES, OUTER_NAMES
from tests.reference.checkpoint import FloatArray

OUTER_FROM_GGUF = {value: key for key, value in OUTER_NAMES.items()}
LAYER_FROM_GGUF = {value: key for key, value in LAYER_NAMES.items()}


def _hugging_face_name(name: str) -> str:
    if name in OUTER_FROM_GGUF:
        return OUTER_FROM_GGUF[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{LAYER_FROM_GGUF[part]}.{kind}"


def _half_split_rows(rows: FloatArray, head_count: int) -> FloatArray:
    pairs = rows.reshape(head_count, rows.shape[0] // head_count // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows.shape))


def read_gguf_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, FloatArray]]:
    """A config in Hugging Face terms and the weights. Rope frequency divisors are not read: refused when present."""
    reader = gguf.GGUFReader(path)
    values = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer.")}
    architecture = values["general.architecture"]

    def of(key: str) -> Any:
        return values[f"{architecture}.{key}"]

    head_count, kv_head_count = of("attention.head_count"), of("attention.head_count_kv")
    weights: dict[str, FloatArray] = {}
    for tensor in reader.tensors:
        if tensor.name == "rope_freqs.weight":
            raise ValueError("rope frequency divisors")
        array = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        name = _hugging_face_name(tensor.name)
        if architecture == "llama" and ".q_proj." in name:
            array = _half_split_rows(array, head_count)
        elif architecture == "llama" and ".k_proj." in name:
            array = _half_split_rows(array, kv_head_count)
        weights[name] = array
    config = {
        "model_type": architecture,
        "num_hidden_layers": of("block_count"),
        "hidden_size": of("embedding_length"),
        "num_attention_heads": head_count,
        "num_key_value_heads": kv_head_count,
        "head_dim": values.get(f"{architecture}.attention.key_length"),
        "rms_norm_eps": of("attention.layer_norm_rms_epsilon"),
        "rope_theta": values.get(f"{architecture}.rope.freq_base", 10000.0),
        "tie_word_embeddings": "lm_head.weight" not in weights,
    }
    return config, weights
