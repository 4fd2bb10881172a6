from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.models.bundles import lowered_bundle_of

from edgellm.engines.bundle import Bundle
from edgellm.errors import BundleDamagedError, BundleMismatchError


@pytest.fixture(scope="module")
def pristine_bundle(pristine_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return lowered_bundle_of(pristine_checkpoint, tmp_path_factory.mktemp("bundle") / "bundle")


@pytest.fixture
def folder(pristine_bundle: Bundle, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine_bundle.directory, tmp_path / "bundle"))


def refusal(folder: Path) -> str:
    with pytest.raises(BundleDamagedError) as caught:
        Bundle.load(folder)
    return str(caught.value)


def test_a_bundle_says_what_it_holds(pristine_bundle: Bundle) -> None:
    config = json.loads((pristine_bundle.directory / "config.json").read_text())
    assert config["model"] == "llama"
    assert config["vocab_size"] == pristine_bundle.vocab_size
    assert config["num_hidden_layers"] == 3
    assert config["builder_config"]["max_input_len"] == config["max_position_embeddings"] == 1024
    assert config["checkpoint_identity"]["version"] == 1
    assert pristine_bundle.quantisation == "q8_0"
    assert pristine_bundle.source_kind == "safetensors"
    assert pristine_bundle.chat_template_file is not None
    assert pristine_bundle.generation_config_file is not None


def test_loading_gives_back_what_was_written(pristine_bundle: Bundle) -> None:
    assert Bundle.load(pristine_bundle.directory) == pristine_bundle


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, wrong) for name in ("model", "model_id", "architecture", "quantisation") for wrong in (None, "", 3)),
        *(
            (name, wrong)
            for name in ("vocab_size", "num_hidden_layers", "head_dim")
            for wrong in (0, -1, 1.5, True, "1")
        ),
        ("max_position_embeddings", 1 << 40),
        ("source_kind", "onnx"),
        ("runtime", "tensorrt"),
        ("engine_role", "draft"),
        ("spec_decode_type", "eagle3"),
        ("eos_token_id", 2),
        ("eos_token_id", [1 << 20]),
        ("eos_token_id", ["2"]),
        ("bos_token_id", -1),
        ("lowering_version", 0),
        ("builder_config", {}),
        ("checkpoint_identity", {"version": 1, "digest": "abc"}),
        ("checkpoint_identity", {"version": 2, "digest": "0" * 64}),
        ("checkpoint_identity", []),
    ],
)
def test_each_wrong_field_is_named(folder: Path, field: str, value: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config[field] = value
    path.write_text(json.dumps(config))
    assert refusal(folder).startswith(f"{path}: {field}")


def test_each_missing_field_is_named(folder: Path) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for field in config:
        path.write_text(json.dumps({key: value for key, value in config.items() if key != field}))
        assert field in refusal(folder)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b" " * (2 << 20)])
def test_a_config_that_is_no_object_is_refused(folder: Path, content: bytes) -> None:
    (folder / "config.json").write_bytes(content)
    assert str(folder / "config.json") in refusal(folder)


@pytest.mark.parametrize("name", ["llm.gguf", "tokenizer.json", "tokenizer_config.json", "config.json"])
def test_each_missing_or_empty_file_is_named(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"")
    assert name in refusal(folder)
    (folder / name).unlink()
    assert name in refusal(folder)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    assert "not a bundle" in refusal(tmp_path / "nowhere")


def test_a_bundle_of_another_checkpoint_is_refused_naming_both(pristine_bundle: Bundle) -> None:
    pristine_bundle.require_checkpoint(pristine_bundle.checkpoint_digest)
    with pytest.raises(BundleMismatchError, match=f"from checkpoint {pristine_bundle.checkpoint_digest}.*{'f' * 64}"):
        pristine_bundle.require_checkpoint("f" * 64)
