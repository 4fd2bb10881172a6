"""The reference checks itself: causality, rotary invariance, and rounding far below the tolerances it is used with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.reference.decoder import ReferenceDecoder, rope_frequencies

PROMPT = np.random.default_rng(7).integers(5, 300, 48).tolist()


@pytest.mark.parametrize("variant", ["llama", "llama-llama3-rope", "qwen2", "qwen3-multi-query-bf16"])
def test_float32_rounding_stays_below_1e_4(tmp_path: Path, variant: str) -> None:
    folder = write_checkpoint(tmp_path, VARIANTS[variant])
    single = ReferenceDecoder.from_checkpoint(folder).logits(PROMPT)
    double = ReferenceDecoder.from_checkpoint(folder, np.float64).logits(PROMPT)
    assert single.dtype == np.float32
    assert np.abs(single - double).max() < 1e-4


def test_later_tokens_do_not_change_earlier_rows(tmp_path: Path) -> None:
    decoder = ReferenceDecoder.from_checkpoint(write_checkpoint(tmp_path, VARIANTS["llama"]), np.float64)
    whole = decoder.logits(PROMPT)
    np.testing.assert_allclose(decoder.logits(PROMPT[:20]), whole[:20], atol=1e-9)
    changed = decoder.logits([*PROMPT[:20], 9, *PROMPT[21:]])
    assert np.abs(changed[20:] - whole[20:]).max(axis=1).min() > 1e-3


def test_llama3_scaling_keeps_fast_pairs_and_stretches_slow_ones(tmp_path: Path) -> None:
    model = VARIANTS["llama-llama3-rope"]
    decoder = ReferenceDecoder.from_checkpoint(write_checkpoint(tmp_path, model))
    plain = rope_frequencies({"rope_theta": model.rope_theta}, model.head_size)
    ratio = plain / decoder.frequencies
    assert ratio[0] == pytest.approx(1.0)
    assert ratio[-1] == pytest.approx(8.0)
    assert np.all(np.diff(ratio) >= -1e-12)
    assert np.any((ratio > 1.1) & (ratio < 7.9)), "the blended band is exercised"


def test_old_and_new_config_names_mean_the_same() -> None:
    scaling = {"rope_type": "linear", "factor": 4.0}
    old = rope_frequencies({"rope_theta": 5e5, "rope_scaling": scaling}, 32)
    new = rope_frequencies({"rope_parameters": {**scaling, "rope_theta": 5e5}}, 32)
    np.testing.assert_array_equal(old, new)
