"""Writes a tiny model straight as GGUF, independent of the product's own lowering, with any type for its matrices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tests.models.safetensors_writer import FloatArray
from tests.models.tiny_checkpoints import TinyModel, make_weights
from tests.models.tiny_tokenizer import BEGIN_OF_TEXT, END_OF_TEXT, TURN_END

ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
PRE_TOKENIZER_NAMES = {"gpt2": "gpt-2", "smollm": "smollm", "llama3": "llama-bpe", "qwen2": "qwen2"}

OUTER_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(hugging_face_name: str) -> str:
    if hugging_face_name in OUTER_NAMES:
        return OUTER_NAMES[hugging_face_name]
    _, _, layer, rest = hugging_face_name.split(".", 3)
    part, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{LAYER_NAMES[part]}.{kind}"


def adjacent_pair_rows(rows: FloatArray, head_count: int) -> FloatArray:
    """Reorder query or key rows from halves (i, i + d/2) to neighbours (2i, 2i + 1): llama's layout in GGUF."""
    halves = rows.reshape(head_count, 2, rows.shape[0] // head_count // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def gguf_weights(model: TinyModel) -> dict[str, FloatArray]:
    """Weights by GGUF name in GGUF layout."""
    weights: dict[str, FloatArray] = {}
    for name, values in make_weights(model).items():
        if ARCHITECTURES[model.family] == "llama":
            if ".q_proj." in name:
                values = adjacent_pair_rows(values, model.head_count)
            elif ".k_proj." in name:
                values = adjacent_pair_rows(values, model.kv_head_count)
        weights[gguf_name(name)] = values
    return weights


def llama3_frequency_divisors(model: TinyModel, scaling: Mapping[str, Any]) -> FloatArray:
    wavelengths = 2 * np.pi * model.rope_theta ** (np.arange(0, model.head_size, 2) / model.head_size)
    turns = scaling["original_max_position_embeddings"] / wavelengths
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1.0 / (kept + (1.0 - kept) / scaling["factor"])).astype(np.float32)


def _write_metadata(writer: gguf.GGUFWriter, model: TinyModel) -> None:
    writer.add_name("tiny")
    writer.add_block_count(model.layer_count)
    writer.add_context_length(model.context_length)
    writer.add_embedding_length(model.hidden_size)
    writer.add_feed_forward_length(model.intermediate_size)
    writer.add_head_count(model.head_count)
    writer.add_head_count_kv(model.kv_head_count)
    writer.add_layer_norm_rms_eps(model.norm_epsilon)
    writer.add_key_length(model.head_size)
    writer.add_value_length(model.head_size)
    writer.add_rope_dimension_count(model.head_size)
    writer.add_rope_freq_base(model.rope_theta)
    writer.add_vocab_size(model.vocab_size)
    if model.rope_scaling and model.rope_scaling["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(model.rope_scaling["factor"])


def _write_tokenizer(writer: gguf.GGUFWriter, model: TinyModel) -> None:
    tokenizer = model.tokenizer
    ids, merges = tokenizer.vocabulary()
    tokens = [*ids, *(f"[PAD{index}]" for index in range(model.padding_rows))]
    kinds = dict.fromkeys(tokenizer.special_tokens, gguf.TokenType.CONTROL)
    kinds |= dict.fromkeys(tokenizer.plain_added_tokens, gguf.TokenType.USER_DEFINED)
    kinds |= {token: gguf.TokenType.UNUSED for token in tokens if token.startswith("[PAD")}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER_NAMES[tokenizer.pre_tokenizer])
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.get(token, gguf.TokenType.NORMAL) for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(ids.get(BEGIN_OF_TEXT, ids[END_OF_TEXT]))
    writer.add_eos_token_id(ids[TURN_END])
    writer.add_add_bos_token(tokenizer.adds_bos)
    if tokenizer.chat_template is not None:
        writer.add_chat_template(tokenizer.chat_template)


def write_gguf(path: Path, model: TinyModel, matrix_type: str = "F32") -> Path:
    """Write one file. ``matrix_type`` is a GGUF type name such as F16, Q8_0, Q4_1; vectors stay F32."""
    kind = gguf.GGMLQuantizationType[matrix_type]
    writer = gguf.GGUFWriter(path, ARCHITECTURES[model.family])
    _write_metadata(writer, model)
    _write_tokenizer(writer, model)
    if model.rope_scaling and model.rope_scaling["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_frequency_divisors(model, model.rope_scaling))
    for name, values in gguf_weights(model).items():
        if values.ndim == 1 or kind == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def rounded_weights(model: TinyModel, matrix_type: str) -> dict[str, FloatArray]:
    """Hugging Face weights after a round trip through ``matrix_type``: what a runtime of that file computes with."""
    kind = gguf.GGMLQuantizationType[matrix_type]
    return {
        name: values if values.ndim == 1 else gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind)
        for name, values in make_weights(model).items()
    }
