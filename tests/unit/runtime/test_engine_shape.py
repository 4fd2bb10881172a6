"""What a launch asks of an engine and of a build: the engine's values win, with a warning; the rest is refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from edgellm.engines.build_profile import BuildProfile
from edgellm.engines.source import ModelSource, SourceKind
from edgellm.engines.tensorrt.engine_metadata import EngineMetadata
from edgellm.engines.tensorrt.layout import EngineLayout
from edgellm.engines.tensorrt.speculation import CompiledSpeculation
from edgellm.errors import ConfigError
from edgellm.runtime.engine_builders import build_profile, build_request
from edgellm.runtime.engine_shape import engine_shape, refuse_in_flight
from edgellm.runtime.llm_options import BuildOptions, ContextCacheConfig, LLMOptions, SpeculativeConfig

COMPILED = EngineMetadata(
    model_type="qwen3",
    vocab_size=1000,
    max_input_len=512,
    max_batch_size=2,
    max_kv_cache_capacity=1024,
    max_image_tokens=600,
    max_image_tokens_per_image=300,
    max_lora_rank=16,
    speculation=CompiledSpeculation("mtp", max_verify_tree_size=9, max_draft_tree_size=8),
)
ASKED = {
    "max_input_len": 512,
    "max_batch_size": 2,
    "max_kv_cache_capacity": 1024,
    "max_image_tokens": 600,
    "max_image_tokens_per_image": 300,
    "max_lora_rank": 16,
    "max_verify_tree_size": 9,
    "max_draft_tree_size": 8,
}


def options(**values: Any) -> LLMOptions:
    return LLMOptions("m", **values)


@pytest.mark.parametrize("values", [{}, ASKED])
def test_a_launch_that_asks_for_what_was_compiled_gets_it_quietly(
    values: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        shape = engine_shape(options(**values), COMPILED)
    assert (shape.limits.max_input_len, shape.limits.max_kv_cache_capacity, shape.max_batch_size) == (512, 1024, 2)
    assert not caplog.records


@pytest.mark.parametrize("name", list(ASKED))
def test_a_value_that_differs_from_the_engines_is_replaced_with_a_warning(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        shape = engine_shape(options(**{name: ASKED[name] + 1}), COMPILED)
    assert (shape.limits.max_input_len, shape.limits.max_kv_cache_capacity, shape.max_batch_size) == (512, 1024, 2)
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{name} {ASKED[name] + 1} was asked for; the engine was compiled for {ASKED[name]}, which is used"
    )


def test_what_an_engine_does_not_state_is_the_launchs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        shape = engine_shape(options(max_input_len=100, max_batch_size=3, max_verify_tree_size=4), EngineMetadata())
    assert (shape.limits.max_input_len, shape.limits.max_kv_cache_capacity, shape.max_batch_size) == (100, 8192, 3)
    assert not caplog.records


def test_batching_and_reuse_are_opt_in() -> None:
    shape = engine_shape(options(), COMPILED)
    assert (shape.in_flight_batching, shape.context_cache.enabled) == (False, False)
    chosen = options(enable_in_flight_batching=True, context_cache=ContextCacheConfig(True))
    shape = engine_shape(chosen, COMPILED)
    assert (shape.in_flight_batching, shape.context_cache.enabled) == (True, True)


def test_in_flight_batching_is_refused_where_it_cannot_serve(tmp_path: Path) -> None:
    refuse_in_flight(EngineLayout(tmp_path, ("llm", "visual", "talker", "code_predictor", "code2wav")), "qwen3_omni")
    with pytest.raises(ConfigError, match=r"enable_in_flight_batching: speculative decoding has none — start without"):
        refuse_in_flight(EngineLayout(tmp_path, ("spec_base", "spec_draft")), "qwen3")
    with pytest.raises(ConfigError, match=r"enable_in_flight_batching: standalone speech models have none"):
        refuse_in_flight(EngineLayout(tmp_path, ("talker", "code_predictor", "code2wav")), "qwen3_tts")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"quantisation": "q8_0"}, "quantisation: TensorRT engines have the precision of their checkpoint"),
        ({"executor": "ggml"}, "executor: this is an option of the native runtime"),
        ({"threads": 2, "runtime": "tensorrt"}, "threads: this is an option of the native runtime"),
        ({"speculative": SpeculativeConfig("jetspec")}, r"speculative_config\.model: jetspec takes its draft"),
        (
            {"speculative": SpeculativeConfig("mtp"), "enable_in_flight_batching": True},
            r"enable_in_flight_batching: speculative decoding \(mtp\) has none",
        ),
    ],
)
def test_what_tensorrt_cannot_do_is_refused_before_anything_is_built(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        options(**values).refuse_unsupported("tensorrt")


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"speculative": SpeculativeConfig("mtp")},
        {"speculative": SpeculativeConfig("jetspec", "/d")},
        {"enable_in_flight_batching": True},
        {"threads": 2, "runtime": "auto"},
        {"speculative": SpeculativeConfig("mtp"), "enable_in_flight_batching": False},
    ],
)
def test_what_tensorrt_can_do_is_not_refused(values: dict[str, Any]) -> None:
    options(**values).refuse_unsupported("tensorrt")


def test_a_drafting_option_without_a_method_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        options(draft_top_k=3).refuse_unsupported("tensorrt")
    assert "draft_top_k has no effect without a method" in caplog.text


@pytest.mark.parametrize(
    ("values", "profile"),
    [
        ({}, BuildProfile()),
        (
            {"max_input_len": 100, "max_batch_size": 3, "max_kv_cache_capacity": 200, "max_image_tokens": 700},
            BuildProfile(max_input_len=100, max_batch_size=3, max_kv_cache_capacity=200, max_image_tokens=700),
        ),
        ({"verify_tree_size": 8}, BuildProfile()),
        ({"speculative": SpeculativeConfig("eagle3", "/d")}, BuildProfile(spec_type="eagle3")),
        (
            {"speculative": SpeculativeConfig("eagle3", "/d"), "draft_top_k": 4, "verify_tree_size": 30},
            BuildProfile(spec_type="eagle3", max_verify_tree_size=30),
        ),
        ({"speculative": SpeculativeConfig("mtp")}, BuildProfile(spec_type="mtp")),
        ({"speculative": SpeculativeConfig("mtp"), "draft_top_k": 2}, BuildProfile(spec_type="mtp", tree_base=True)),
        ({"speculative": SpeculativeConfig("mtp", "/d"), "draft_top_k": 2}, BuildProfile(spec_type="gemma4_mtp")),
        (
            {"speculative": SpeculativeConfig("dflash", "/d"), "verify_tree_size": 8},
            BuildProfile(spec_type="dflash", max_verify_tree_size=8, max_draft_tree_size=8),
        ),
        (
            {
                "speculative": SpeculativeConfig("dflash", "/d"),
                "verify_tree_size": 8,
                "max_verify_tree_size": 16,
                "max_draft_tree_size": 12,
                "draft_top_k": 2,
            },
            BuildProfile(spec_type="dflash", max_verify_tree_size=16, max_draft_tree_size=12, tree_base=True),
        ),
        (
            {"speculative": SpeculativeConfig("jetspec", "/d"), "max_verify_tree_size": 16},
            BuildProfile(spec_type="jetspec", max_verify_tree_size=16),
        ),
        (
            {"speculative": SpeculativeConfig("dspark", "/d"), "draft_top_k": 2},
            BuildProfile(spec_type="dspark", tree_base=True),
        ),
    ],
)
def test_a_launch_builds_what_it_will_ask_of_the_engine(values: dict[str, Any], profile: BuildProfile) -> None:
    assert build_profile(options(**values), "tensorrt") == profile


def test_the_draft_is_resolved_where_a_method_has_one() -> None:
    source = ModelSource(SourceKind.SAFETENSORS, Path("/m"), "m")
    draft = ModelSource(SourceKind.SAFETENSORS, Path("/d"), "d")
    asked: list[str] = []

    def find(model: str) -> ModelSource:
        asked.append(model)
        return draft

    with_draft = options(speculative=SpeculativeConfig("mtp", "org/draft"))
    assert build_request(with_draft, source, find, "tensorrt").draft == draft
    assert asked == ["org/draft"]
    for values in ({}, {"speculative": SpeculativeConfig("mtp")}):
        assert build_request(options(**values), source, find, "tensorrt").draft is None
    assert build_request(with_draft, source, find, "native").draft is None
    assert asked == ["org/draft"]


def test_build_options_name_an_assistants_engine_by_its_own_name() -> None:
    built = options().with_build_options(BuildOptions("gemma4_mtp", "/d"))
    assert built.speculative == SpeculativeConfig("mtp", "/d")
    assert build_profile(built, "tensorrt").spec_type == "gemma4_mtp"
