from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.tiny_checkpoints import LLAMA3_SCALING, VARIANTS, config_json
from tests.models.tiny_gguf import llama3_frequency_divisors as independent_divisors

from edgellm.engines.lowering.model_config import DecoderConfig, decoder_config, llama3_frequency_divisors
from edgellm.errors import CheckpointError, UnsupportedModelError

PATH = Path("checkpoint/config.json")
BASE = config_json(VARIANTS["llama"])


def read(**changes: Any) -> DecoderConfig:
    values = {**BASE, **changes}
    return decoder_config(PATH, {key: value for key, value in values.items() if value is not ...})


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_understood(variant: str) -> None:
    model = VARIANTS[variant]
    config = decoder_config(PATH, config_json(model))
    assert (config.hidden_size, config.layer_count, config.head_size) == (
        model.hidden_size,
        model.layer_count,
        model.head_size,
    )
    assert config.rope_base == model.rope_theta
    assert config.rope_scaling.kind == (model.rope_scaling or {"rope_type": "none"})["rope_type"]
    assert config.context_length == config.usable_context_length == model.context_length
    assert config.family.permuted == (model.family in ("llama", "mistral"))


def test_an_unknown_family_lists_the_supported_ones() -> None:
    with pytest.raises(
        UnsupportedModelError,
        match=r"model_type 'gemma9' is not supported \(supported: llama, mistral, qwen2, qwen3, idefics3, smolvlm\)",
    ):
        read(model_type="gemma9")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"quantization_config": {"quant_method": "awq"}}, r"already quantised \(awq\)"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope scaling 'yarn' is not supported"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope scaling 'dynamic'"),
        ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1.0}}, "rope scaling 'longrope'"),
        ({"layer_types": ["full_attention", "chunked_attention"]}, "layer type 'chunked_attention'"),
    ],
)
def test_what_the_runtime_lacks_is_refused_by_name(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"checkpoint/config.json: .*{reason}"):
        read(**changes)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        *(
            ({name: wrong}, name)
            for name in ("hidden_size", "vocab_size")
            for wrong in (..., 0, -1, "1", True, 1.5, [])
        ),
        ({"model_type": ...}, "model_type"),
        ({"model_type": 3}, "model_type"),
        ({"num_attention_heads": 5}, "num_attention_heads"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"head_dim": 33}, "head_dim"),
        ({"rms_norm_eps": 0}, "rms_norm_eps"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rope_theta": float("inf")}, "rope_theta"),
        ({"rope_scaling": "linear"}, "rope_scaling"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": -1}}, "rope_scaling.factor"),
        ({"rope_scaling": {**LLAMA3_SCALING, "high_freq_factor": 1.0}}, "rope_scaling.high_freq_factor"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
    ],
)
def test_each_wrong_field_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(CheckpointError, match=rf"checkpoint/config.json: {field} "):
        read(**changes)


def test_absent_settings_mean_what_they_mean_to_the_authors_tools() -> None:
    config = read(rms_norm_eps=..., rope_theta=..., rope_scaling=..., num_key_value_heads=..., tie_word_embeddings=...)
    assert (config.norm_epsilon, config.rope_base, config.rope_scaling.kind) == (1e-6, 10000.0, "none")
    assert config.kv_head_count is None
    assert config.tied is None


@pytest.mark.parametrize(
    ("changes", "length"),
    [
        ({"sliding_window": 256}, 256),
        ({"sliding_window": None}, 1024),
        ({"sliding_window": 4096}, 1024),
        ({"sliding_window": 256, "layer_types": ["full_attention"] * 3}, 1024),
        ({"sliding_window": 256, "layer_types": ["full_attention", "sliding_attention"]}, 256),
        ({"model_type": "qwen2", "sliding_window": 256, "use_sliding_window": False}, 1024),
        ({"model_type": "qwen2", "sliding_window": 256, "use_sliding_window": True}, 256),
    ],
)
def test_a_sliding_window_bounds_the_context(changes: dict[str, Any], length: int) -> None:
    assert read(**changes).usable_context_length == length


@pytest.mark.parametrize("variant", ["llama-llama3-rope", "llama-modern-config"])
def test_llama3_divisors_agree_with_an_independent_formula(variant: str) -> None:
    model = VARIANTS[variant]
    config = decoder_config(PATH, config_json(model))
    assert model.rope_scaling is not None
    np.testing.assert_allclose(
        llama3_frequency_divisors(config), independent_divisors(model, model.rope_scaling), rtol=1e-6
    )
