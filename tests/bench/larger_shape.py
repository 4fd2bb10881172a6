"""A GGUF file in the shape of a model of 0.5 billion weights. They are random: its words mean nothing, not its cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.models.tiny_checkpoints import VARIANTS
from tests.models.tiny_gguf import write_gguf

VOCABULARY_TOKENS = 151_936

# https://huggingface.co/Qwen/Qwen2.5-0.5B-Instruct/blob/main/config.json
QWEN2_5_0_5B = replace(
    VARIANTS["qwen2"],
    hidden_size=896,
    intermediate_size=4864,
    layer_count=24,
    head_count=14,
    kv_head_count=2,
    head_size=64,
    context_length=32768,
    tied=True,
    padding_rows=0,
)


def write_half_billion_shape(path: Path, matrix_type: str) -> Path:
    padding_rows = VOCABULARY_TOKENS - QWEN2_5_0_5B.token_count
    return write_gguf(path, replace(QWEN2_5_0_5B, padding_rows=padding_rows), matrix_type)
