"""Arguments of LLM: checked by name, defaults by runtime, overrides in their order."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

from edgellm.errors import ConfigError
from edgellm.runtime.llm_options import (
    BuildOptions,
    ContextCacheConfig,
    LLMOptions,
    SpeculativeConfig,
)

COUNTS = [
    "max_input_len",
    "max_batch_size",
    "max_kv_cache_capacity",
    "max_image_tokens",
    "max_image_tokens_per_image",
    "draft_top_k",
    "draft_step",
    "verify_tree_size",
    "max_verify_tree_size",
    "max_draft_tree_size",
    "threads",
]


@pytest.mark.parametrize("model", ["", "  ", None, 3])
def test_an_empty_model_is_refused(model: Any) -> None:
    with pytest.raises(ConfigError, match="model"):
        LLMOptions(model)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
def test_counts_are_positive_integers_and_no_booleans(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        LLMOptions("m", **{name: value})


@pytest.mark.parametrize("size", [0, -1, math.nan, math.inf, True, "50", None])
def test_the_engine_cache_size_is_finite_and_above_zero(size: Any) -> None:
    with pytest.raises(ConfigError, match="engine_cache_max_size_gb"):
        LLMOptions("m", engine_cache_max_size_gb=size)


def test_the_engine_cache_size_counts_in_powers_of_two() -> None:
    assert LLMOptions("m", engine_cache_max_size_gb=1.5).engine_cache_max_size_bytes == 3 * 2**29


@pytest.mark.parametrize(
    "options",
    [
        {"runtime": "gpu"},
        {"executor": 3},
        {"enable_in_flight_batching": 1},
        {"clear_engine_cache": 1},
        {"build_on_start": 1},
        {"read_only_engine_dirs": ("/baked", "")},
        {"max_batch_size": 257},
        {"threads": 1025},
        {"max_lora_rank": -1},
        {"max_lora_rank": True},
        {"reduced_vocab_dir": ""},
        {"reduced_vocab_dir": 3},
    ],
)
def test_other_arguments_are_checked_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        LLMOptions("m", **options)


def test_defaults_on_the_native_runtime() -> None:
    shape = LLMOptions("m").shape("native", 100_000)
    assert (shape.in_flight_batching, shape.max_batch_size, shape.context_cache.enabled) == (True, 4, True)
    assert (shape.limits.max_input_len, shape.limits.max_kv_cache_capacity) == (4096, 8192)
    blocking = LLMOptions("m", enable_in_flight_batching=False).shape("native", 100_000)
    assert (blocking.in_flight_batching, blocking.max_batch_size) == (False, 1)


def test_defaults_on_tensorrt_are_opt_in() -> None:
    shape = LLMOptions("m").shape("tensorrt", 100_000)
    assert (shape.in_flight_batching, shape.max_batch_size, shape.context_cache.enabled) == (False, 1, False)
    chosen = LLMOptions(
        "m", enable_in_flight_batching=True, max_batch_size=2, context_cache=ContextCacheConfig(True)
    ).shape("tensorrt", 100_000)
    assert (chosen.in_flight_batching, chosen.max_batch_size, chosen.context_cache.enabled) == (True, 2, True)


def test_lengths_stay_within_the_model(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        shape = LLMOptions("m").shape("native", 512)
        assert (shape.limits.max_input_len, shape.limits.max_kv_cache_capacity) == (512, 512)
        assert not caplog.records
        LLMOptions("m", max_input_len=600).shape("native", 512)
    assert "max_input_len 600" in caplog.text
    capped = LLMOptions("m", max_kv_cache_capacity=64).shape("native", 512)
    assert capped.limits.max_input_len == 64


def test_build_options_win_over_scalar_arguments() -> None:
    options = LLMOptions("m", max_input_len=1, max_batch_size=2).with_build_options(BuildOptions(max_input_len=99))
    assert (options.max_input_len, options.max_batch_size) == (99, 2)


def test_a_speculative_config_overrides_the_build_options_method_and_draft() -> None:
    build = BuildOptions(spec_type="eagle3", draft_model_dir="/drafts/a")
    assert LLMOptions("m").with_build_options(build).speculative == SpeculativeConfig("eagle3", "/drafts/a")
    chosen = SpeculativeConfig("mtp", "/drafts/b")
    assert LLMOptions("m", speculative=chosen).with_build_options(build).speculative == chosen


@pytest.mark.parametrize(
    "options",
    [
        {"speculative": SpeculativeConfig("eagle3", "/drafts/a")},
        {"draft_top_k": 1},
        {"draft_step": 1},
        {"verify_tree_size": 1},
        {"max_verify_tree_size": 1},
        {"max_draft_tree_size": 1},
        {"max_image_tokens": 1},
        {"max_image_tokens_per_image": 1},
        {"max_lora_rank": 8},
        {"reduced_vocab_dir": "/vocabularies/small"},
    ],
)
def test_what_the_native_runtime_lacks_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        LLMOptions("m", **options).refuse_unsupported("native")
    LLMOptions("m", **options).refuse_unsupported("tensorrt")


@pytest.mark.parametrize(
    "value",
    [
        "{",
        "[]",
        '{"method": "magic"}',
        {"method": "eagle3", "tokens": 3},
        {"method": "eagle3", "num_speculative_tokens": 0},
        {"method": "eagle3", "num_speculative_tokens": True},
        "[" * 100_000,
    ],
)
def test_a_wrong_speculative_config_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="speculative_config"):
        SpeculativeConfig.parse(value)


def test_a_speculative_config_comes_as_json_or_object() -> None:
    expected = SpeculativeConfig("eagle3", "/d", 5)
    asked = {"method": "eagle3", "model": "/d", "num_speculative_tokens": 5}
    assert SpeculativeConfig.parse(asked) == expected
    assert SpeculativeConfig.parse('{"method":"eagle3","model":"/d","num_speculative_tokens":5}') == expected


@pytest.mark.parametrize(
    "value",
    [
        {"enabled": 1},
        {"max_records": 0},
        {"max_records": -1},
        {"max_records": True},
        {"recurrent_snapshot_pool_bytes": -1},
        {"partial_kv_snapshot_pool_bytes": 1.5},
        {"pages": 3},
        3,
    ],
)
def test_a_wrong_context_cache_config_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="context"):
        ContextCacheConfig.parse(value)
