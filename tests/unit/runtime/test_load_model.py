"""load_model and the constructors: the class by model_type, ids as given, refusals with their reasons."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.models.tiny_checkpoints import VARIANTS
from tests.models.tiny_gguf import write_gguf

from edgellm.errors import CheckpointError, ConfigError, EdgeLLMError, ModelSourceError, UnsupportedModelError
from edgellm.runtime import loader
from edgellm.runtime.llm import LLM
from edgellm.runtime.load_model import TTS, load_model
from edgellm.runtime.modules import SelectedRuntime


@pytest.fixture
def speech_checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "speaker"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_tts"}))
    (folder / "model.safetensors").write_bytes(b"\0" * 16)
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.mark.parametrize("model", ["", " ", None, 3])
def test_an_empty_model_is_refused(model: Any) -> None:
    for load in (load_model, LLM):
        with pytest.raises(ConfigError, match="model"):
            load(model)


def test_a_path_object_is_as_good_as_its_text(speech_checkpoint: Path, tmp_path: Path) -> None:
    missing = tmp_path / "nothing.gguf"
    for load in (load_model, LLM):
        with pytest.raises(ModelSourceError, match=r"nothing\.gguf: no such file"):
            load(missing, cache_dir=tmp_path, runtime="native")
    with pytest.raises(UnsupportedModelError, match="speech"):
        load_model(speech_checkpoint, cache_dir=tmp_path)


def test_a_speech_checkpoint_is_refused_clearly_for_now(speech_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="speech"):
        load_model(str(speech_checkpoint), cache_dir=str(tmp_path))


@pytest.mark.parametrize(
    ("options", "feature"),
    [
        ({"draft_top_k": 2}, "speculative"),
        ({"draft_step": 2}, "speculative"),
        ({"verify_tree_size": 2}, "speculative"),
        ({"max_verify_tree_size": 2}, "speculative"),
        ({"max_draft_tree_size": 2}, "speculative"),
        ({"speculative_config": {"method": "eagle3"}}, "speculative"),
        ({"enable_in_flight_batching": True}, "in-flight"),
        ({"enable_context_reuse": True}, "context cache"),
        ({"context_cache_config": {"enabled": True}}, "context cache"),
    ],
)
def test_speech_models_refuse_what_they_do_not_have(
    speech_checkpoint: Path, tmp_path: Path, options: dict[str, Any], feature: str
) -> None:
    with pytest.raises(ConfigError, match=feature) as refusal:
        load_model(model=str(speech_checkpoint), cache_dir=str(tmp_path), **options)
    assert next(iter(options)) in str(refusal.value)
    with pytest.raises(ConfigError, match=feature):
        TTS(str(speech_checkpoint), **options)


def test_a_model_that_is_not_there_and_a_damaged_config_name_the_path(speech_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelSourceError, match="nowhere"):
        load_model(str(tmp_path / "nowhere"), cache_dir=str(tmp_path))
    (speech_checkpoint / "config.json").write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_model(str(speech_checkpoint), cache_dir=str(tmp_path))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"threads": 0}, "threads"),
        ({"max_batch_size": True}, "max_batch_size"),
        ({"runtime": "cuda"}, "runtime"),
        ({"engine_cache_max_size_gb": float("nan")}, "engine_cache_max_size_gb"),
        ({"speculative_config": {"method": "eagle3"}, "runtime": "native"}, "speculative_config"),
        ({"build_options": {"spec_type": "eagle3"}, "runtime": "native"}, "eagle3"),
        ({"build_options": {"spec": "eagle3"}}, "build_options"),
        ({"context_cache_config": {"enabled": 1}}, "enable_context_reuse"),
        ({"context_cache_max_records": 0}, "context_cache_max_records"),
    ],
)
def test_wrong_options_are_refused_before_the_model_is_looked_for(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        LLM("/nowhere/model.gguf", **options)


@pytest.mark.parametrize("runtime", ["auto", "tensorrt"])
def test_a_gguf_file_runs_on_the_native_runtime_unless_tensorrt_was_asked_for(
    runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    selected = SelectedRuntime("tensorrt", ModuleType("payload"), "a test")
    monkeypatch.setattr(loader, "select_runtime", lambda _choice: selected)
    monkeypatch.setenv("EDGELLM_DEVICE_FILE", str(tmp_path / "absent.json"))
    model = write_gguf(tmp_path / "little.gguf", VARIANTS["llama"], "Q8_0")
    if runtime == "tensorrt":
        with pytest.raises(EdgeLLMError, match="tensorrt"):
            LLM(str(model), cache_dir=str(tmp_path / "cache"), runtime=runtime)
        return
    # An option that only the native runtime has is no fault of a launch on auto that ends there.
    with LLM(str(model), cache_dir=str(tmp_path / "cache"), executor="fused") as llm:
        assert llm.capabilities.runtime == "native"
        assert llm.capabilities.executor == "fused"
