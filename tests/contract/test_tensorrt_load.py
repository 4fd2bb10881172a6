"""From a model argument to the runtime: built, found, resolved against the engine, loaded with the right arguments.

The builder is the stand-in, the board is described, and a scripted module is in the place of the one that needs a GPU.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.contract.tensorrt_board import OnBoard, described
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.unit.runtime.scripted_runtime import ScriptedModule

from edgellm.cli.main import main
from edgellm.engines.manifest import Manifest
from edgellm.engines.resources.estimate import require_memory
from edgellm.errors import (
    ConfigError,
    EngineMissingError,
    InsufficientMemoryError,
    UnsupportedModelError,
)
from edgellm.runtime import loader, tensorrt_load
from edgellm.runtime.llm import LLM

DRAFT = {"model_type": "qwen3", "block_size": 8}
LENGTHS = {"max_input_len": 128, "max_kv_cache_capacity": 256, "max_batch_size": 2}


@pytest.fixture
def module(on_board: OnBoard) -> ScriptedModule:
    scripted = ScriptedModule(extensions=False)
    on_board(scripted)
    return scripted


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "tiny", VARIANTS["qwen3"])


def open_llm(model: Any, tmp_path: Path, **options: Any) -> LLM:
    return LLM(str(model), runtime="tensorrt", cache_dir=str(tmp_path / "cache"), **{**LENGTHS, **options})


def test_a_text_model_is_built_once_and_loaded_with_its_checkpoint(
    module: ScriptedModule, checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        with open_llm(checkpoint, tmp_path, build_on_start=not module.runtimes) as llm:
            (root, media, adapters, weights, cache) = module.runtimes[-1].arguments["positional"]
            assert (root, media, adapters, weights) == (llm.bundle_dir, "", {}, str(checkpoint))
            assert cache.enabled is False
            assert llm.capabilities.runtime == "tensorrt"
            assert (llm.max_batch_size, llm.has_draft_model, llm.bundle_layout.engine_type) == (2, False, "llm")
            assert llm.capabilities.vocab_size > 0
            assert llm.generate("hi")[0].finish_reason == "stop"
    assert Path(module.runtimes[0].arguments["positional"][0], "manifest.json").is_file()
    with pytest.raises(EngineMissingError, match=r"differs in profile\.max_input_len: 64 here, 128 there"):
        open_llm(checkpoint, tmp_path, max_input_len=64, build_on_start=False)


def test_in_flight_batching_takes_the_engine_of_requests(
    module: ScriptedModule, checkpoint: Path, tmp_path: Path
) -> None:
    with open_llm(checkpoint, tmp_path, enable_in_flight_batching=True) as llm:
        assert module.engines[0].arguments["max_batch_size"] == 2
        assert module.engines[0].arguments["positional"][3] == str(checkpoint)
        assert llm.get_scheduling_metrics() is not None


def test_a_speculative_pair_is_loaded_with_its_shape_and_draft(
    module: ScriptedModule, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = described(tmp_path / "vision", {"model_type": "qwen3_vl"})
    draft = described(tmp_path / "draft", {"model_type": "qwen3", "block_size": 8})
    speculative = {"method": "dflash", "model": draft, "num_speculative_tokens": 4}
    with caplog.at_level(logging.WARNING, "edgellm"):
        llm = open_llm(model, tmp_path, speculative_config=speculative, max_verify_tree_size=16)
    with llm:
        (root, media, _, top_k, step, verify, weights, draft_weights, _, block) = module.runtimes[0].arguments[
            "positional"
        ]
        assert (top_k, step, verify, block) == (1, 1, 4, 4)
        assert (root, media, weights, draft_weights) == (llm.bundle_dir, llm.bundle_dir, model, draft)
        assert llm.has_draft_model
        assert llm.capabilities.speculative_method == "dflash"
        assert Path(str(llm.bundle_layout.visual_dir)).name == "visual"
    assert not [record for record in caplog.records if "was asked for" in record.getMessage()]
    with pytest.raises(ConfigError, match=r"proposes 2 to 8 tokens on this engine, not 9"):
        open_llm(
            model,
            tmp_path,
            speculative_config={**speculative, "num_speculative_tokens": 9},
            max_verify_tree_size=16,
            build_on_start=False,
        )
    with pytest.raises(ConfigError, match=r"enable_in_flight_batching: speculative decoding \(dflash\) has none"):
        open_llm(model, tmp_path, speculative_config=speculative, enable_in_flight_batching=True)


def test_a_model_that_only_speaks_is_refused_before_it_is_built(module: ScriptedModule, tmp_path: Path) -> None:
    model = described(tmp_path / "speaker", {"model_type": "qwen3_tts"})
    with pytest.raises(UnsupportedModelError, match="a speech model, and LLM runs text"):
        open_llm(model, tmp_path)
    assert not (tmp_path / "cache" / "engines").exists()


def test_a_load_that_does_not_fit_is_refused_with_numbers(
    module: ScriptedModule, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_llm(checkpoint, tmp_path).close()
    monkeypatch.setattr(tensorrt_load, "require_memory", require_memory)
    load = tensorrt_load.load_tensorrt_bundle

    def with_little_memory(*arguments: Any, **named: Any) -> Any:
        return load(*arguments, **named, read_available=lambda: 600 << 20)

    monkeypatch.setattr(loader, "load_tensorrt_bundle", with_little_memory)
    with pytest.raises(InsufficientMemoryError, match=r"needs \d+ MiB of memory, 600 MiB are available.*KV pool 1 MiB"):
        open_llm(checkpoint, tmp_path)


def test_the_command_builds_lists_and_explains_engines(
    module: ScriptedModule, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = described(tmp_path / "vision", {"model_type": "qwen3_vl"})
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    monkeypatch.setenv("EDGELLM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("EDGELLM_CONFIG", raising=False)
    speculative = {"method": "dspark", "model": described(tmp_path / "draft", DRAFT)}
    asked = ["--speculative-config", json.dumps(speculative)]
    asked += ["--draft-top-k", "2", "--max-image-tokens", "600", "--max-input-len", "128"]
    assert main(["engine", "explain", model, *asked]) == 0
    assert "MISS" in capsys.readouterr().out
    assert main(["engine", "build", model, *asked]) == 0
    bundle = Path(capsys.readouterr().out.strip())
    manifest = Manifest.read(bundle / "manifest.json")
    assert manifest.components == ("spec_base", "spec_draft", "visual")
    inputs = manifest.key.inputs
    assert (inputs["profile.spec_type"], inputs["profile.tree_base"]) == ("dspark", True)
    assert (inputs["profile.max_image_tokens"], inputs["profile.max_input_len"]) == (600, 128)
    assert (inputs["platform.sm"], inputs["platform.l4t"]) == (87, "R39.2")
    assert isinstance(inputs["draft"], str)
    assert main(["engine", "explain", model, *asked]) == 0
    assert "HIT" in capsys.readouterr().out
    assert main(["engine", "verify"]) == 0
    assert main(["engine", "build", model, "--draft-top-k", "0"]) == 78
    assert "--draft-top-k" in capsys.readouterr().err
