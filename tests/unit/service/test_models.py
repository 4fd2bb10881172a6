"""Settings of a model reach LLM under the names of its arguments, all of them, and unset ones not at all."""

from __future__ import annotations

import inspect
from dataclasses import asdict
from pathlib import Path

import pytest

from edgellm.config import AdmissionSettings, ModelSettings, Settings
from edgellm.config.model_settings import SamplingSettings
from edgellm.config.settings import EngineSettings
from edgellm.errors import ConfigError, ModelSourceError
from edgellm.runtime.llm import LLM
from edgellm.service.load_estimate import VOICE_BYTES, WORKER_PROCESS_BYTES, load_bytes
from edgellm.service.models import llm_arguments, model_specs, serving_settings
from edgellm.serving.sampling_defaults import SamplingDefaults
from edgellm.serving.settings import ServingSettings

# Settings that are for serving, not for the runtime.
SERVED = {
    *("kind", "source", "name", "aliases", "replicas", "cpus", "sampling"),
    *("required", "residency", "idle_timeout_seconds"),
    *("max_queued_requests", "queue_timeout_seconds", "request_timeout_seconds"),
    *("reasoning_parser", "tool_call_parser", "enable_auto_tool_choice"),
}
VALUES = {
    "runtime": "tensorrt",
    "executor": "ggml",
    "threads": 2,
    "quantisation": "q8_0",
    "max_input_len": 3,
    "max_batch_size": 4,
    "max_kv_cache_capacity": 5,
    "enable_in_flight_batching": False,
    "enable_context_reuse": True,
    "context_reuse_max_records": 6,
    "context_reuse_recurrent_snapshot_pool_bytes": 7,
    "context_reuse_partial_kv_snapshot_pool_bytes": 8,
    "max_image_tokens": 9,
    "max_image_tokens_per_image": 10,
    "max_lora_rank": 17,
    "reduced_vocab_dir": Path("/vocabularies/small"),
    "speculative_config": {"method": "mtp", "num_speculative_tokens": 11},
    "draft_top_k": 12,
    "draft_step": 13,
    "verify_tree_size": 14,
    "max_verify_tree_size": 15,
    "max_draft_tree_size": 16,
}


def test_every_setting_of_a_model_reaches_the_runtime() -> None:
    assert set(ModelSettings.model_fields) == set(VALUES) | SERVED
    arguments = llm_arguments(ModelSettings(source="m", **VALUES))  # type: ignore[arg-type]
    renamed = {name.replace("context_reuse_", "context_cache_"): value for name, value in VALUES.items()}
    renamed["reduced_vocab_dir"] = "/vocabularies/small"  # as text: it goes to a worker
    assert arguments == renamed
    assert set(arguments) <= set(inspect.signature(LLM).parameters)


def test_every_sampling_setting_of_a_model_reaches_its_requests(tmp_path: Path) -> None:
    chosen = {
        "temperature": 0.25,
        "top_p": 0.5,
        "top_k": 7,
        "min_p": 0.125,
        "repetition_penalty": 1.5,
        "max_new_tokens": 5,
    }
    assert set(chosen) == set(SamplingSettings.model_fields)
    model = ModelSettings(source="smollm2-135m-instruct", sampling=SamplingSettings.model_validate(chosen))
    (spec,) = model_specs(Settings(cache_dir=tmp_path, models=(model,)))
    defaults = asdict(SamplingDefaults().overlaid(spec.sampling))
    assert {name: defaults["max_tokens" if name == "max_new_tokens" else name] for name in chosen} == chosen


def test_a_model_that_is_fetched_when_it_is_loaded_has_no_size_yet(tmp_path: Path) -> None:
    model = ModelSettings(source="smollm2-135m-instruct", runtime="native")
    assert load_bytes(model, Settings(cache_dir=tmp_path)) is None
    fixed = Settings(cache_dir=tmp_path, engines=EngineSettings(build_on_start=False))
    for refused in (lambda: load_bytes(model, fixed), lambda: model_specs(fixed)):
        with pytest.raises(ModelSourceError, match="run: edgellm models add smollm2-135m-instruct"):
            refused()
    (spec,) = model_specs(Settings(cache_dir=tmp_path))
    assert spec.name == model.source


def test_limits_of_a_model_go_before_those_of_all() -> None:
    shared = AdmissionSettings(max_queued_requests=3, queue_timeout_seconds=4.0, priority_grants_ahead_max=5)
    own = ModelSettings(source="m", max_queued_requests=0, request_timeout_seconds=6.0)
    settings = Settings(admission=shared)
    assert serving_settings(settings, own) == ServingSettings(0, 4.0, 6.0, 5)
    assert serving_settings(settings) == ServingSettings(3, 4.0, None, 5)


def test_what_is_not_set_is_left_to_the_defaults() -> None:
    assert llm_arguments(ModelSettings(source="m")) == {"runtime": "auto", "executor": "auto"}


@pytest.mark.parametrize(
    ("source", "kind", "does"), [("whisper-tiny.en", "asr", "transcribes speech"), ("voice", "tts", "speaks")]
)
def test_settings_of_text_models_are_refused_for_one_of_another_kind(
    tmp_path: Path, source: str, kind: str, does: str
) -> None:
    settings = Settings(cache_dir=tmp_path, models=(ModelSettings(source=source, max_batch_size=2, threads=1),))
    with pytest.raises(ConfigError, match=f"max_batch_size is for models that make text; this one {does}"):
        model_specs(settings)
    (spec,) = model_specs(Settings(cache_dir=tmp_path, models=(ModelSettings(source=source, threads=1),)))
    assert (spec.name, spec.kind) == (source, kind)


def test_a_voice_takes_what_its_weights_and_its_work_take(tmp_path: Path) -> None:
    (tmp_path / "v.onnx.json").write_text('{"audio": {"sample_rate": 22050}}')
    (tmp_path / "v.onnx").write_bytes(bytes(1000))
    settings = Settings(cache_dir=tmp_path)
    of_two = load_bytes(ModelSettings(source=str(tmp_path / "v.onnx"), replicas=2), settings)
    assert of_two == 2 * (1000 + VOICE_BYTES + WORKER_PROCESS_BYTES)
    assert load_bytes(ModelSettings(source="voice"), settings) is None  # it is fetched when it is loaded
