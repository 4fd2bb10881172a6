"""Which checkpoints make embeddings, and of which sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
from tests.models.pooling import write_pooling

from edgellm.engines.embedding_output import EmbeddingOutput, embedding_output
from edgellm.engines.source import ModelSource, SourceKind
from edgellm.errors import CheckpointError


def _folder(path: Path, config: dict[str, Any] | None = None) -> Path:
    (path / "config.json").write_text(json.dumps(config or {}))
    return path


def _output(folder: Path) -> EmbeddingOutput:
    return embedding_output(ModelSource(SourceKind.SAFETENSORS, folder, "m"))


def _gguf(path: Path, pooling: gguf.PoolingType | None) -> EmbeddingOutput:
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_embedding_length(64)
    if pooling is not None:
        writer.add_pooling_type(pooling)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return embedding_output(ModelSource(SourceKind.GGUF, path, "m"))


def test_a_model_of_text_makes_none(tmp_path: Path) -> None:
    assert _output(_folder(tmp_path)) == EmbeddingOutput()


def test_a_model_that_takes_its_last_token_makes_them_at_their_full_size(tmp_path: Path) -> None:
    output = _output(write_pooling(_folder(tmp_path), 64))
    assert output == EmbeddingOutput(64)
    assert [size for size in range(-1, 70) if output.allows(size)] == [64]


def test_newer_files_name_their_pooling(tmp_path: Path) -> None:
    write_pooling(_folder(tmp_path), 64)
    (tmp_path / "1_Pooling" / "config.json").write_text('{"embedding_dimension": 64, "pooling_mode": "lasttoken"}')
    assert _output(tmp_path) == EmbeddingOutput(64)


def test_a_vector_may_be_cut_where_the_model_was_trained_for_it(tmp_path: Path) -> None:
    any_size = _output(write_pooling(_folder(tmp_path, {"is_matryoshka": True}), 64))
    assert [size for size in range(-1, 70) if any_size.allows(size)] == list(range(1, 65))
    some = _output(_folder(tmp_path, {"is_matryoshka": True, "matryoshka_dimensions": [32, 16]}))
    assert [size for size in range(-1, 70) if some.allows(size)] == [16, 32, 64]


@pytest.mark.parametrize("mode", ["mean_tokens", "cls_token"])
def test_another_pooling_is_refused_with_its_name(tmp_path: Path, mode: str) -> None:
    output = _output(write_pooling(_folder(tmp_path), 64, mode))
    assert output.size == 0
    assert mode in output.refusal


def test_a_module_that_the_runtime_lacks_is_refused_with_its_name(tmp_path: Path) -> None:
    output = _output(write_pooling(_folder(tmp_path), 64, modules=("Transformer", "Pooling", "Dense", "Normalize")))
    assert output.size == 0
    assert "Dense" in output.refusal


def test_a_pooling_that_was_not_fetched_costs_embeddings_alone(tmp_path: Path) -> None:
    (write_pooling(_folder(tmp_path), 64) / "1_Pooling" / "config.json").unlink()
    output = _output(tmp_path)
    assert (output.size, output.refusal) == (0, "its 1_Pooling/config.json is missing")


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("modules.json", "{", "modules.json"),
        ("modules.json", '{"a": 1}', "modules.json"),
        ("modules.json", '[{"type": "a.Transformer"}, {"type": "a.Pooling", "path": "../x"}]', "path"),
        ("modules.json", '[{"type": "a.Transformer"}, {"type": "a.Pooling", "path": ".."}]', "path"),
        ("modules.json", '[{"type": "a.Transformer"}, {"type": "a.Pooling"}]', "path"),
        ("1_Pooling/config.json", "[]", "config.json"),
        ("1_Pooling/config.json", '{"pooling_mode_lasttoken": true}', "word_embedding_dimension"),
        (
            "1_Pooling/config.json",
            '{"pooling_mode_lasttoken": true, "word_embedding_dimension": true}',
            "word_embedding_dimension",
        ),
        ("config.json", '{"matryoshka_dimensions": [0]}', "matryoshka_dimensions"),
        ("config.json", '{"matryoshka_dimensions": 3}', "matryoshka_dimensions"),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, text: str, named: str) -> None:
    write_pooling(_folder(tmp_path), 64)
    (tmp_path / name).write_text(text)
    with pytest.raises(CheckpointError, match=named):
        _output(tmp_path)


def test_gguf_files_say_it_in_one_field(tmp_path: Path) -> None:
    assert _gguf(tmp_path / "a.gguf", None) == EmbeddingOutput()
    assert _gguf(tmp_path / "b.gguf", gguf.PoolingType.NONE) == EmbeddingOutput()
    assert _gguf(tmp_path / "c.gguf", gguf.PoolingType.LAST) == EmbeddingOutput(64)
    mean = _gguf(tmp_path / "d.gguf", gguf.PoolingType.MEAN)
    assert mean.size == 0
    assert "mean" in mean.refusal
