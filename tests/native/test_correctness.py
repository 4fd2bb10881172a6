"""Logits of the native runtime against the independent numpy reference, on tiny random models of every family.

How far each may be off, and why:

* float32 weights and a float32 KV cache: rounding order alone. Logits have a standard deviation of 3; the reference
  in float32 differs from itself in float64 by up to 5e-5.
* float16 and 8-bit weights on our own kernels: they keep activations in float32 or in blocks of 16-bit integers, so
  the exact reference over the dequantised weights is met closely (measured: divergence below 5e-7).
* 4-bit weights on our own kernels, and all of them on the tensor library's: these round activations to float16 or to
  blocks of 8 bits. A reference that rounds in the same places (tests/reference/activation_rounding.py) is met to 1e-6,
  until an activation lies so near a border that float32 rounding decides which way it goes: from then on this row, and
  every later one through attention, differs by such steps. So the median of the first rows of many prompts is held
  tightly, and every row by its divergence. Against the exact reference, the divergence is that rounding's own.
* a float16 KV cache: keys and values lose 11 bits of mantissa.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.models.tiny_checkpoints import VARIANTS, config_json, make_weights
from tests.models.tiny_gguf import rounded_weights
from tests.native.runtime_driver import Ask, BundleMaker, NativeEngine, NativeRuntime
from tests.reference.activation_rounding import PRODUCT_BY_MATRIX_TYPE, Product, own_block_product
from tests.reference.decoder import ReferenceDecoder, log_softmax

Array = NDArray[Any]

FLOAT32_LOGIT_TOLERANCE = 2e-4
OWN_KERNEL_DIVERGENCE = {"F16": 1e-9, "Q8_0": 5e-6}
# Nearly every row of float16 kernels has an activation on a border: a float16 step is 5e-4 of the value.
MODELLED_KERNEL_MEDIAN_TOLERANCE = {"F16": 1e-2, "Q8_0": 1e-5, "Q4_0": 1e-5, "Q4_1": 1e-5}
MODELLED_KERNEL_FIRST_ROWS = 4
MODELLED_KERNEL_DIVERGENCE = 5e-2
QUANTISED_MEAN_DIVERGENCE = {"F16": 1e-4, "Q8_0": 3e-2, "Q4_0": 3e-2, "Q4_1": 3e-2}
HALF_KV_MEAN_DIVERGENCE = 1e-4

ONE_VARIANT_A_FAMILY = ("llama-heads-6-2", "llama-llama3-rope", "mistral", "qwen2", "qwen3")

IDS = np.random.default_rng(11).integers(10, 340, 75).tolist()


@cache
def reference_logits(variant: str, matrix_type: str = "F32") -> Array:
    model = VARIANTS[variant]
    weights = make_weights(model) if matrix_type == "F32" else rounded_weights(model, matrix_type)
    return ReferenceDecoder(config_json(model), weights, np.float64).logits(IDS)


def divergence(reference: Array, logits: Array) -> Array:
    """Kullback-Leibler divergence of each row's distribution from the reference's."""
    expected, got = log_softmax(reference), log_softmax(logits.astype(np.float64))
    return (np.exp(expected) * (expected - got)).sum(axis=-1)


def scored(directory: Path, **options: Any) -> Array:
    options = {"threads": 1, "kv_type": "f32", "max_kv_tokens": 128, **options}
    return NativeRuntime(directory, **options).score(IDS)


def assert_logits_close(logits: Array, expected: Array, tolerance: float) -> None:
    columns = min(logits.shape[1], expected.shape[1])
    assert np.abs(logits[:, :columns] - expected[:, :columns]).max() < tolerance


@pytest.mark.parametrize("portable_attention", [False, True], ids=["own-kernels", "library-kernels"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_float32_logits_are_the_reference_s(tiny_bundle: BundleMaker, variant: str, portable_attention: bool) -> None:
    logits = scored(tiny_bundle(variant), portable_attention=portable_attention)
    assert logits.shape == (len(IDS), VARIANTS[variant].vocab_size)
    assert_logits_close(logits, reference_logits(variant), FLOAT32_LOGIT_TOLERANCE)


@pytest.mark.parametrize("matrix_type", OWN_KERNEL_DIVERGENCE)
@pytest.mark.parametrize("variant", ONE_VARIANT_A_FAMILY)
def test_own_kernels_compute_with_the_dequantised_weights(
    tiny_bundle: BundleMaker, variant: str, matrix_type: str
) -> None:
    runtime = NativeRuntime(tiny_bundle(variant, matrix_type), threads=1, kv_type="f32", max_kv_tokens=128)
    if "AVX2" not in runtime.native.executor_info().device:
        pytest.skip("own kernels for weights exist for AVX2; elsewhere the tensor library's are used and tested")
    rows = divergence(reference_logits(variant, matrix_type), runtime.score(IDS))
    assert rows.max() < OWN_KERNEL_DIVERGENCE[matrix_type]


@pytest.mark.parametrize("matrix_type", MODELLED_KERNEL_MEDIAN_TOLERANCE)
@pytest.mark.parametrize("variant", ONE_VARIANT_A_FAMILY)
def test_library_kernels_are_met_by_a_reference_that_rounds_alike(
    tiny_bundle: BundleMaker, variant: str, matrix_type: str
) -> None:
    options = {"threads": 1, "kv_type": "f32", "max_kv_tokens": 128, "portable_attention": True}
    runtime = NativeRuntime(tiny_bundle(variant, matrix_type), **options)
    assert_rounds_like(PRODUCT_BY_MATRIX_TYPE[matrix_type], runtime, variant, matrix_type)


@pytest.mark.parametrize("matrix_type", ["Q4_0", "Q4_1"])
@pytest.mark.parametrize("variant", ONE_VARIANT_A_FAMILY)
def test_own_kernels_of_four_bits_are_met_by_a_reference_that_rounds_alike(
    tiny_bundle: BundleMaker, variant: str, matrix_type: str
) -> None:
    """That every instruction set gives the same bits is in test_panel_kernels.cpp."""
    runtime = NativeRuntime(tiny_bundle(variant, matrix_type), threads=1, kv_type="f32", max_kv_tokens=128)
    assert "panels" in runtime.native.executor_info().device
    assert_rounds_like(own_block_product, runtime, variant, matrix_type)


def assert_rounds_like(product: Product, runtime: NativeRuntime, variant: str, matrix_type: str) -> None:
    """A reference with ``product`` is met tightly by the median of first rows, and by every row's divergence."""
    model = VARIANTS[variant]
    reference = ReferenceDecoder(config_json(model), rounded_weights(model, matrix_type), np.float64, product)
    first_rows = []
    for prompt in np.random.default_rng(13).integers(10, 340, (16, 40)).tolist():
        expected, logits = reference.logits(prompt), runtime.score(prompt)
        first_rows.append(np.abs(logits - expected).max(axis=1)[:MODELLED_KERNEL_FIRST_ROWS])
        assert divergence(expected, logits).max() < MODELLED_KERNEL_DIVERGENCE
    assert np.median(first_rows) < MODELLED_KERNEL_MEDIAN_TOLERANCE[matrix_type]


@pytest.mark.parametrize("portable_attention", [False, True], ids=["own-kernels", "library-kernels"])
@pytest.mark.parametrize("matrix_type", QUANTISED_MEAN_DIVERGENCE)
@pytest.mark.parametrize("variant", ONE_VARIANT_A_FAMILY)
def test_quantised_logits_stay_near_the_dequantised_weights(
    tiny_bundle: BundleMaker, variant: str, matrix_type: str, portable_attention: bool
) -> None:
    logits = scored(tiny_bundle(variant, matrix_type), portable_attention=portable_attention)
    mean = divergence(reference_logits(variant, matrix_type), logits).mean()
    assert mean < QUANTISED_MEAN_DIVERGENCE[matrix_type]


@pytest.mark.parametrize("portable_attention", [False, True], ids=["own-kernels", "library-kernels"])
@pytest.mark.parametrize("variant", ONE_VARIANT_A_FAMILY)
def test_half_precision_kv_cache_changes_little(
    tiny_bundle: BundleMaker, variant: str, portable_attention: bool
) -> None:
    logits = scored(tiny_bundle(variant), kv_type="f16", portable_attention=portable_attention)
    rows = divergence(reference_logits(variant), logits)
    assert np.abs(logits - reference_logits(variant)).max() > 0
    assert rows.mean() < HALF_KV_MEAN_DIVERGENCE


@pytest.mark.parametrize("variant", ["llama-heads-6-2", "qwen3"])
@pytest.mark.parametrize("prefill_chunk_tokens", [1, 7, 32, 64, 512])
@pytest.mark.parametrize("kv_page_tokens", [8, 32])
def test_chunks_and_pages_do_not_change_logits(
    tiny_bundle: BundleMaker, variant: str, prefill_chunk_tokens: int, kv_page_tokens: int
) -> None:
    logits = scored(tiny_bundle(variant), prefill_chunk_tokens=prefill_chunk_tokens, kv_page_tokens=kv_page_tokens)
    assert_logits_close(logits, reference_logits(variant), FLOAT32_LOGIT_TOLERANCE)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_do_not_change_logits(tiny_bundle: BundleMaker, threads: int) -> None:
    logits = scored(tiny_bundle("qwen2"), threads=threads)
    assert_logits_close(logits, reference_logits("qwen2"), FLOAT32_LOGIT_TOLERANCE)


def test_far_positions_are_rotated_right(tiny_bundle: BundleMaker) -> None:
    """1,500 positions: an error of the angle grows with the position and would show here."""
    ids = np.random.default_rng(12).integers(10, 340, 1500).tolist()
    model = VARIANTS["long-context"]
    expected = ReferenceDecoder(config_json(model), make_weights(model), np.float64).logits(ids)[-50:]
    runtime = NativeRuntime(tiny_bundle("long-context"), threads=1, kv_type="f32", max_kv_tokens=1536)
    # Angles are float32: a position of 1,500 leaves them 1e-4 of a turn.
    assert np.abs(runtime.score(ids)[-50:] - expected).max() < 5e-3


@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_continuations_are_the_reference_s(tiny_bundle: BundleMaker, variant: str) -> None:
    model = VARIANTS[variant]
    reference = ReferenceDecoder(config_json(model), make_weights(model))
    prompt, token_count = IDS[:9], 24
    expected = reference.greedy(prompt, token_count)
    two_best = np.sort(reference.logits(prompt + expected)[len(prompt) - 1 : -1, : model.token_count], axis=1)[:, -2:]
    assert np.diff(two_best).min() > 2 * FLOAT32_LOGIT_TOLERANCE, "the seed gives no tie"
    runtime = NativeRuntime(tiny_bundle(variant), threads=1, kv_type="f32", max_kv_tokens=64)
    answer = runtime.answer(Ask(prompt, max_tokens=token_count, extensions={"ignore_eos": True}))
    assert answer.token_ids == expected
    assert answer.finish == "LENGTH"
    assert answer.prompt_tokens == len(prompt)


@pytest.mark.parametrize("variant", ONE_VARIANT_A_FAMILY)
def test_logprobs_are_those_of_the_model_before_temperature(tiny_bundle: BundleMaker, variant: str) -> None:
    model = VARIANTS[variant]
    engine = NativeEngine(tiny_bundle(variant), threads=1, kv_type="f32", max_kv_tokens=128)
    prompt = IDS[:13]
    ask = Ask(prompt, 12, temperature=1.7, top_k=40, top_p=0.9, seed=5, logprobs=5, extensions={"ignore_eos": True})
    answer = engine.answer(ask)
    engine.close()
    reference = ReferenceDecoder(config_json(model), make_weights(model), np.float64)
    expected = reference.logprobs(prompt + answer.token_ids)[len(prompt) - 1 : -1]
    assert len(answer.logprobs) == len(answer.token_ids) == 12
    for row, chosen, entries in zip(expected, answer.token_ids, answer.logprobs, strict=True):
        best = np.argsort(-row)[:5].tolist()
        assert entries[0][0] == chosen
        assert [entry[0] for entry in entries[1:]] == best
        for token, logprob, _ in entries:
            assert logprob == pytest.approx(row[token], abs=FLOAT32_LOGIT_TOLERANCE)


@pytest.mark.parametrize("variant", ["llama", "qwen2", "qwen3"])
def test_embeddings_are_the_last_hidden_row_at_length_one(tiny_bundle: BundleMaker, variant: str) -> None:
    runtime = NativeRuntime(tiny_bundle(variant), threads=1, kv_type="f32", max_kv_tokens=128)
    model = VARIANTS[variant]
    expected = ReferenceDecoder(config_json(model), make_weights(model), np.float64).hidden(IDS)[-1]
    expected /= np.linalg.norm(expected)
    response = runtime.native.handle_request(Ask(IDS, max_tokens=1, extensions={"embeddings": True}).native())
    np.testing.assert_allclose(np.array(response.embeddings[0]), expected, atol=FLOAT32_LOGIT_TOLERANCE)
