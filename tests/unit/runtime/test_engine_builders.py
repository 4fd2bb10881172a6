"""Which builder a runtime gets, and what is said where there is none."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.engines.jetson_platforms import ORIN

from edgellm.engines.build_profile import BuildProfile
from edgellm.engines.builder import BuildRequest
from edgellm.engines.source import ModelSource, SourceKind
from edgellm.engines.tensorrt.arguments import BuildFolders, builder_arguments
from edgellm.engines.tensorrt.platform_facts import PlatformFacts
from edgellm.engines.tensorrt.tensorrt_builder import TensorRTPlan
from edgellm.errors import ConfigError, RuntimeUnavailableError
from edgellm.runtime import engine_builders
from edgellm.runtime.engine_builders import build_request, builder_for
from edgellm.runtime.llm_options import LLMOptions


@pytest.fixture
def facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlatformFacts:
    facts = ORIN.facts(tmp_path / "board")
    monkeypatch.setattr(engine_builders, "platform_facts", lambda: facts)
    monkeypatch.setattr(engine_builders, "builder_module", lambda: "experimental.builder")
    return facts


def plan(tmp_path: Path, **environment: str) -> TensorRTPlan:
    checkpoint = tmp_path / "model"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text('{"model_type": "qwen3"}')
    builder = builder_for("tensorrt", cache_dir=tmp_path / "cache", environment=environment)
    made = builder.plan(BuildRequest(ModelSource(SourceKind.SAFETENSORS, checkpoint, "m"), BuildProfile()))
    assert isinstance(made, TensorRTPlan)
    return made


def test_the_native_runtime_needs_nothing_of_the_machine() -> None:
    assert builder_for("native").name == "native"


def test_tensorrt_gets_nvidias_builder_for_this_machine(facts: PlatformFacts, tmp_path: Path) -> None:
    builder = builder_for("tensorrt")
    assert (builder.name, builder.fingerprint.keyed["payload_id"]) == ("tensorrt", "jetson-orin-jp72-cu13-sm87")
    program = plan(tmp_path, EDGELLM_PLUGIN_PATH="/plugins/of-the-wheel.so").program
    assert program.command == (sys.executable, "-P", "-m", "experimental.builder")
    assert program.logs == tmp_path / "cache" / "build-logs"
    assert program.plugin is None


def test_adapters_and_a_reduced_vocabulary_reach_the_builders_command_line(
    facts: PlatformFacts, tmp_path: Path
) -> None:
    vocabulary = tmp_path / "vocabulary"
    vocabulary.mkdir()
    (vocabulary / "vocab_map.safetensors").write_bytes(b"kept tokens")
    options = LLMOptions("m", max_lora_rank=16, reduced_vocab_dir=str(vocabulary))
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "qwen3"}')
    source = ModelSource(SourceKind.SAFETENSORS, model, "m")
    request = build_request(options, source, lambda _: source, "tensorrt")
    builder = builder_for("tensorrt", options=options)
    key = builder.key(request)
    assert key.inputs["profile.max_lora_rank"] == 16
    assert key.inputs["profile.reduced_vocab_digest"] == hashlib.sha256(b"kept tokens").hexdigest()
    made = builder.plan(request)
    assert isinstance(made, TensorRTPlan)
    folders = BuildFolders(model, tmp_path / "staging", reduced_vocab=made.reduced_vocab)
    words = builder_arguments(request.profile, folders)
    assert words[words.index("--max-lora-rank") + 1] == "16"
    assert words[words.index("--reduced-vocab-dir") + 1] == str(vocabulary)
    (vocabulary / "vocab_map.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"reduced_vocab_dir: .*vocab_map\.safetensors does not exist"):
        build_request(options, source, lambda _: source, "tensorrt")


def test_a_builder_from_source_is_told_its_plugin(
    facts: PlatformFacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_builders, "platform_facts", lambda: replace(facts, payloads=None))
    assert plan(tmp_path, EDGELLM_PLUGIN_PATH="/plugins/own.so").program.plugin == Path("/plugins/own.so")


def test_a_machine_without_the_builder_or_without_facts_is_told(
    facts: PlatformFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_builders, "platform_facts", lambda: replace(facts, wheel_version=""))
    with pytest.raises(RuntimeUnavailableError, match="the version of tensorrt-edgellm is not known here"):
        builder_for("tensorrt")
    monkeypatch.setattr(engine_builders, "builder_module", lambda: "")
    with pytest.raises(RuntimeUnavailableError, match="the builder of tensorrt-edgellm is not installed"):
        builder_for("tensorrt")
