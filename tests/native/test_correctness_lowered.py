"""Checkpoints that went through the product's lowering compute what the reference computes from the same checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from tests.models.bundles import lowered_bundle_of
from tests.models.tiny_checkpoints import VARIANTS, config_json, write_checkpoint
from tests.models.tiny_gguf import gguf_name, gguf_weights
from tests.native.runtime_driver import Ask, BundleMaker, NativeEngine
from tests.native.test_correctness import FLOAT32_LOGIT_TOLERANCE, IDS, QUANTISED_MEAN_DIVERGENCE, divergence, scored
from tests.reference.checkpoint import read_checkpoint
from tests.reference.decoder import ReferenceDecoder
from tokenizers import Tokenizer


@pytest.mark.parametrize("variant", VARIANTS)
def test_float32_bundles_compute_the_checkpoint(lowered_bundle: BundleMaker, tmp_path: Path, variant: str) -> None:
    """Storage types are honoured: bf16 and f16 checkpoints widen to float32 without loss."""
    checkpoint = write_checkpoint(tmp_path / variant, VARIANTS[variant])
    expected = ReferenceDecoder.from_checkpoint(checkpoint, np.float64).logits(IDS)
    logits = scored(lowered_bundle(variant, "f32"))
    tokens = VARIANTS[variant].token_count
    assert logits.shape[1] >= tokens
    assert np.abs(logits[:, :tokens] - expected[:, :tokens]).max() < FLOAT32_LOGIT_TOLERANCE


@pytest.mark.parametrize("quantisation", ["f16", "q8_0", "q4_0", "q4_1"])
@pytest.mark.parametrize("variant", ["llama", "llama-bf16-sharded", "llama-llama3-rope", "mistral", "qwen2", "qwen3"])
def test_quantised_bundles_stay_near_what_they_hold(
    lowered_bundle: BundleMaker, tmp_path: Path, variant: str, quantisation: str
) -> None:
    """The reference runs on the checkpoint's weights after a round trip through the type each has in the bundle."""
    directory = lowered_bundle(variant, quantisation)
    _, weights = read_checkpoint(write_checkpoint(tmp_path / variant, VARIANTS[variant]))
    kinds = {tensor.name: tensor.tensor_type for tensor in gguf.GGUFReader(directory / "llm.gguf").tensors}
    assert kinds["blk.0.ffn_down.weight"].name == quantisation.upper()
    rounded = {
        name: values
        if values.ndim == 1
        else gguf.quants.dequantize(gguf.quants.quantize(values, kinds[gguf_name(name)]), kinds[gguf_name(name)])
        for name, values in weights.items()
    }
    expected = ReferenceDecoder(config_json(VARIANTS[variant]), rounded, np.float64).logits(IDS)
    logits = scored(directory)
    tokens = VARIANTS[variant].token_count
    mean = divergence(expected[:, :tokens], logits[:, :tokens]).mean()
    assert mean < QUANTISED_MEAN_DIVERGENCE[quantisation.upper()]


@pytest.mark.parametrize("variant", ["llama-untied", "llama-llama3-rope", "mistral", "qwen2", "qwen3"])
def test_float32_bundles_hold_the_tensors_an_independent_writer_writes(
    lowered_bundle: BundleMaker, variant: str
) -> None:
    reader = gguf.GGUFReader(lowered_bundle(variant, "f32") / "llm.gguf")
    tensors = {tensor.name: np.array(tensor.data) for tensor in reader.tensors if tensor.name != "rope_freqs.weight"}
    expected = gguf_weights(VARIANTS[variant])
    assert tensors.keys() == expected.keys()
    for name, values in expected.items():
        rows = len(tensors[name])
        np.testing.assert_array_equal(tensors[name].reshape(rows, -1), values[:rows].reshape(rows, -1), err_msg=name)


@pytest.mark.parametrize("variant", ["qwen2", "qwen3"])
def test_padding_rows_of_the_embedding_have_no_text(lowered_bundle: BundleMaker, variant: str) -> None:
    """Rows beyond the tokenizer's tokens may be drawn from random weights; they say nothing and break nothing."""
    model = VARIANTS[variant]
    tokenizer = Tokenizer.from_file(str(lowered_bundle(variant, "f32") / "tokenizer.json"))
    engine = NativeEngine(lowered_bundle(variant, "f32"), threads=1, max_kv_tokens=512)
    asks = [Ask(IDS[:5], 300, temperature=2.0, seed=seed, extensions={"ignore_eos": True}) for seed in range(4)]
    answers = engine.answers(asks)
    engine.close()
    for answer in answers:
        known = [token for token in answer.token_ids if token < model.token_count]
        # A code point that is cut off by the end is left out of the answer; the tokenizer shows it as U+FFFD.
        assert answer.text.rstrip("\ufffd") == tokenizer.decode(known, skip_special_tokens=True).rstrip("\ufffd")


def test_a_tied_model_ignores_a_stored_output_matrix(tmp_path: Path) -> None:
    """Checkpoints that say tied and still carry lm_head.weight exist; their published code uses the embedding."""
    model = replace(VARIANTS["llama-untied"], config_overrides={"tie_word_embeddings": True})
    checkpoint = write_checkpoint(tmp_path / "model", model)
    bundle = lowered_bundle_of(checkpoint, tmp_path / "bundle", "f32")
    expected = ReferenceDecoder.from_checkpoint(checkpoint, np.float64).logits(IDS)
    assert np.abs(scored(bundle.directory) - expected).max() < FLOAT32_LOGIT_TOLERANCE
