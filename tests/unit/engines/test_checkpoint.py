from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.models.bundles import stored_bundle

from edgellm.engines.checkpoint import Checkpoint
from edgellm.engines.source import resolve
from edgellm.errors import CheckpointError, ModelError
from edgellm.runtime.load_model import load_model

INDEX = "model.safetensors.index.json"


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("model-*.safetensors"))


def edit_index(folder: Path, change: Callable[[dict[str, str]], object]) -> None:
    index = json.loads((folder / INDEX).read_text())
    change(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index))


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        Checkpoint(folder)
    return str(caught.value)


def test_tensors_are_found_over_all_shards(pristine_checkpoint: Path) -> None:
    checkpoint = Checkpoint(pristine_checkpoint)
    files = {located.file.path.name for located in checkpoint.tensors.values()}
    assert files == {path.name for path in shards(pristine_checkpoint)}
    assert len(files) == 2
    assert "model.norm.weight" in checkpoint.tensors


def test_shards_are_found_without_an_index(checkpoint_copy: Path) -> None:
    (checkpoint_copy / INDEX).unlink()
    assert "model.norm.weight" in Checkpoint(checkpoint_copy).tensors


def test_the_single_file_wins_over_others_beside_it(checkpoint_copy: Path) -> None:
    (checkpoint_copy / INDEX).unlink()
    shutil.copy(shards(checkpoint_copy)[0], checkpoint_copy / "model.safetensors")
    checkpoint = Checkpoint(checkpoint_copy)
    assert [file.path.name for file in checkpoint.files] == ["model.safetensors"]


def test_a_missing_shard_is_named(checkpoint_copy: Path) -> None:
    missing = shards(checkpoint_copy)[1]
    missing.unlink()
    assert f"{missing}: No such file" in refusal(checkpoint_copy)


def test_a_tensor_that_only_the_index_has_is_named(checkpoint_copy: Path) -> None:
    edit_index(checkpoint_copy, lambda weight_map: weight_map.update({"ghost": shards(checkpoint_copy)[0].name}))
    assert "tensor ghost is missing, though the index lists it" in refusal(checkpoint_copy)


def test_a_tensor_in_two_shards_is_named(checkpoint_copy: Path) -> None:
    (checkpoint_copy / INDEX).unlink()
    shutil.copy(shards(checkpoint_copy)[0], checkpoint_copy / "model-extra.safetensors")
    assert "which one counts?" in refusal(checkpoint_copy)


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "a/b.safetensors", "weights.bin", ".."])
def test_an_index_cannot_name_files_elsewhere(checkpoint_copy: Path, name: str) -> None:
    edit_index(checkpoint_copy, lambda weight_map: weight_map.update({"model.norm.weight": name}))
    assert "which is no weights file here" in refusal(checkpoint_copy)


@pytest.mark.parametrize("content", ["{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', "[", "[]"])
def test_a_wrong_index_is_refused(checkpoint_copy: Path, content: str) -> None:
    (checkpoint_copy / INDEX).write_text(content)
    assert INDEX in refusal(checkpoint_copy)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_wrong_config_is_refused(checkpoint_copy: Path, content: bytes) -> None:
    (checkpoint_copy / "config.json").write_bytes(content)
    assert str(checkpoint_copy / "config.json") in refusal(checkpoint_copy)


def test_a_folder_without_weights_is_refused(checkpoint_copy: Path) -> None:
    for path in [*shards(checkpoint_copy), checkpoint_copy / INDEX]:
        path.unlink()
    assert "no weights" in refusal(checkpoint_copy)


def test_errors_are_checkpoint_errors_for_a_cut_shard(checkpoint_copy: Path) -> None:
    shard = shards(checkpoint_copy)[0]
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match=f"{shard}.*truncated"):
        Checkpoint(checkpoint_copy)


FILES = ("config.json", INDEX, "model-00001-of-00002.safetensors", "tokenizer.json", "tokenizer_config.json")


@pytest.mark.parametrize("name", [*FILES, "generation_config.json", "chat_template.jinja", "modules.json"])
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(
    checkpoint_copy: Path, tmp_path: Path, name: str
) -> None:
    pipe = checkpoint_copy / name
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    with pytest.raises(CheckpointError, match=f"{name}: not a regular file"):
        stored_bundle(resolve(str(checkpoint_copy), tmp_path / "models"), tmp_path / "cache")
    if name in FILES[:3]:  # what reads it alone does not wait either
        assert f"{name}: not a regular file" in refusal(checkpoint_copy)
    with pytest.raises(CheckpointError, match=f"{name}: not a regular file"):
        load_model(checkpoint_copy, cache_dir=tmp_path / "cache", runtime="native")
