"""What a bundle's files say of it, and what is wrong with a bundle that is not whole or says something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgellm.engines.build_profile import BuildProfile
from edgellm.engines.tensorrt.bundle_check import check_build
from edgellm.engines.tensorrt.engine_metadata import EngineMetadata
from edgellm.engines.tensorrt.layout import EngineLayout, check_layout, components_begun
from edgellm.errors import BundleDamagedError, BundleMismatchError, CheckpointError

COMPILED = {"max_input_len": 4096, "max_batch_size": 1, "max_kv_cache_capacity": 8192}
TEXT: dict[str, Any] = {
    "model": "qwen3",
    "engine_role": "llm",
    "spec_decode_type": "none",
    "vocab_size": 1000,
    "builder_config": COMPILED,
    "checkpoint_identity": {},
}


def write(folder: Path, **files: Any) -> Path:
    """Names have ``__`` for a slash and one ``_`` before the ending; an engine is bytes, a configuration an object."""
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path = path.with_name(".".join(path.name.rsplit("_", 1)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


def test_a_text_bundle_is_read(tmp_path: Path) -> None:
    write(tmp_path, llm_engine=b"e", config_json=TEXT)
    assert check_build(tmp_path, ("llm",), BuildProfile()) == ("llm",)
    metadata = EngineMetadata.load(tmp_path)
    assert (metadata.model_type, metadata.vocab_size, metadata.max_input_len) == ("qwen3", 1000, 4096)
    assert (metadata.speculation.method, metadata.max_image_tokens) == ("none", None)
    layout = EngineLayout.inspect(tmp_path)
    assert (layout.engine_type, layout.media_dir, layout.folder("visual")) == ("llm", "", None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": "1000"}, r"config\.json: vocab_size is not a positive number"),
        ({"builder_config": []}, r"config\.json: builder_config is not an object"),
        ({"builder_config": {"max_input_len": True}}, r"config\.json: builder_config\.max_input_len is not a positive"),
        (
            {"builder_config": {"max_lora_rank": -1}},
            r"config\.json: builder_config\.max_lora_rank is not a number of 0",
        ),
        ({"num_hidden_layers": 1.5}, r"config\.json: num_hidden_layers is not a number of 0"),
        ({"model": 3}, r"config\.json: model is not a text"),
    ],
)
def test_a_wrong_value_is_named_with_file_and_field(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    write(tmp_path, llm_engine=b"e", config_json={**TEXT, **change})
    with pytest.raises(CheckpointError, match=message):
        EngineMetadata.load(tmp_path)


def test_half_a_pair_is_no_engine(tmp_path: Path) -> None:
    write(tmp_path, spec_base_engine=b"e", base_config_json=TEXT)
    assert EngineLayout.inspect(tmp_path).engine_type == "unknown"
    with pytest.raises(CheckpointError, match=r"draft_config\.json"):
        EngineMetadata.load(tmp_path)
    with pytest.raises(BundleDamagedError, match=r"spec_draft\.engine: missing or empty: the engine of spec_draft"):
        check_build(tmp_path, ("llm",), BuildProfile(spec_type="mtp"))


@pytest.mark.parametrize(
    ("files", "components", "message"),
    [
        ({"llm_engine": b"", "config_json": TEXT}, ("llm",), r"llm\.engine: missing or empty"),
        ({"llm_engine": b"e", "config_json": b"{"}, ("llm",), r"config\.json: not JSON.*the configuration of llm"),
        (
            {"llm_engine": b"e", "config_json": TEXT},
            ("llm", "later"),
            r"no runtime of this version has a component 'later'",
        ),
        (
            {"visual__visual_engine": b"e", "visual__config_json": {}},
            ("visual",),
            r"neither a text engine nor a whole speech decoder is part of it \(visual\)",
        ),
    ],
)
def test_what_is_not_whole_is_named(
    files: dict[str, Any], components: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(BundleDamagedError, match=message):
        check_layout(write(tmp_path, **files), components)


@pytest.mark.parametrize(
    ("change", "profile", "error", "message"),
    [
        ({}, BuildProfile(max_input_len=5), BundleMismatchError, r"compiled for max_input_len 4096, and 5 was asked"),
        (
            {"spec_decode_type": "mtp"},
            BuildProfile(spec_type="none"),
            None,
            "",
        ),
        ({"checkpoint_identity": None}, BuildProfile(), None, ""),
        ({"engine_role": "draft"}, BuildProfile(), BundleDamagedError, r"no configuration says what its engines"),
    ],
)
def test_a_bundle_is_held_against_what_was_asked(
    change: dict[str, Any], profile: BuildProfile, error: type[Exception] | None, message: str, tmp_path: Path
) -> None:
    write(tmp_path, llm_engine=b"e", config_json={**TEXT, **change})
    if error is None:
        check_build(tmp_path, ("llm",), profile)
        return
    with pytest.raises(error, match=message):
        check_build(tmp_path, ("llm",), profile)


def test_every_component_that_was_begun_counts(tmp_path: Path) -> None:
    write(tmp_path, llm_engine=b"e", config_json=TEXT, visual__config_json={})
    assert components_begun(tmp_path) == ("llm", "visual")
    (tmp_path / "llm.engine").rename(tmp_path / "dllm.engine")
    assert components_begun(tmp_path) == ("dllm", "visual")
    (tmp_path / "dllm.engine").unlink()
    assert components_begun(tmp_path) == ("llm", "visual")
