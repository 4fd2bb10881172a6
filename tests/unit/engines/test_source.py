from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from edgellm.engines.cache_directory import default_cache_dir
from edgellm.engines.catalogue import CATALOGUE
from edgellm.engines.source import SourceKind, resolve
from edgellm.errors import ModelSourceError


def refusal(model: str | Path, tmp_path: Path) -> str:
    with pytest.raises(ModelSourceError) as caught:
        resolve(str(model), tmp_path / "models", download=False)
    return str(caught.value)


def folder_with(tmp_path: Path, *names: str) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("{}")
    return folder


def test_a_gguf_file_is_named_by_its_stem(gguf_copy: Path, tmp_path: Path) -> None:
    source = resolve(str(gguf_copy), tmp_path / "models")
    assert (source.kind, source.path, source.model_id) == (SourceKind.GGUF, gguf_copy, "copy")


def test_a_checkpoint_is_named_by_its_last_folder(checkpoint_copy: Path, tmp_path: Path) -> None:
    for argument in (str(checkpoint_copy), f"{checkpoint_copy}/"):
        source = resolve(argument, tmp_path / "models")
        assert (source.kind, source.path, source.model_id) == (SourceKind.SAFETENSORS, checkpoint_copy, "tiny")


def test_a_link_is_named_as_given_and_opened_where_it_points(checkpoint_copy: Path, tmp_path: Path) -> None:
    link = tmp_path / "linked"
    link.symlink_to(checkpoint_copy)
    source = resolve(str(link), tmp_path / "models")
    assert (source.path, source.model_id) == (checkpoint_copy, "linked")


def test_the_current_folder_has_a_name_too(
    checkpoint_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoint_copy)
    assert resolve(".", tmp_path / "models").model_id == "tiny"


def test_a_home_folder_is_expanded(gguf_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(gguf_copy.parent))
    assert resolve(f"~/{gguf_copy.name}", tmp_path / "models").path == gguf_copy


@pytest.mark.parametrize("model", ["", "   "])
def test_an_empty_argument_is_refused(tmp_path: Path, model: str) -> None:
    assert "the model argument is empty" in refusal(model, tmp_path)


@pytest.mark.parametrize("model", ["a\0b", "a\ud800b"])
def test_characters_that_no_path_has_are_refused(tmp_path: Path, model: str) -> None:
    assert "a character that no name may have" in refusal(model, tmp_path)


def test_a_missing_path_is_refused_with_the_catalogue(tmp_path: Path) -> None:
    message = refusal(tmp_path / "nowhere" / "deep" / "model", tmp_path)
    assert "no such file or directory" in message
    assert "smollm2-135m-instruct" in message


def test_a_hub_id_that_may_not_be_fetched_is_refused(tmp_path: Path) -> None:
    message = refusal("Qwen/Qwen3-0.6B@main", tmp_path)
    assert "is no folder here, and the model" in message
    looked = f"is not on this machine yet: it is not in {tmp_path}/models"
    assert f"{looked} — run: edgellm models add Qwen/Qwen3-0.6B@main" in message


def test_a_checkpoint_with_an_onnx_folder_beside_its_weights_is_one(checkpoint_copy: Path, tmp_path: Path) -> None:
    (checkpoint_copy / "onnx").mkdir()
    (checkpoint_copy / "model.onnx").write_text("x")
    assert resolve(str(checkpoint_copy), tmp_path / "models").kind is SourceKind.SAFETENSORS


def test_a_local_folder_named_like_a_hub_id_is_taken(
    checkpoint_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "org").mkdir()
    shutil.copytree(checkpoint_copy, tmp_path / "org" / "name")
    monkeypatch.chdir(tmp_path)
    assert resolve("org/name", tmp_path / "models").model_id == "name"


def test_a_catalogue_model_that_may_not_be_downloaded_is_refused(tmp_path: Path) -> None:
    message = refusal("smollm2-135m-instruct", tmp_path)
    assert f"is not on this machine yet: it is not in {tmp_path}/models — run: edgellm models add smollm2" in message


def test_a_folder_that_a_variable_of_a_service_names_is_named_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGELLM_CACHE_DIR", str(tmp_path / "a folder"))
    message = refusal("smollm2-135m-instruct", tmp_path / "a folder")
    assert f"it is not in {tmp_path}/a folder/models, by EDGELLM_CACHE_DIR — correct that variable, or run: " in message
    assert f"env EDGELLM_CACHE_DIR='{tmp_path}/a folder' edgellm models add smollm2-135m-instruct" in message
    assert "EDGELLM_CACHE_DIR" not in refusal("smollm2-135m-instruct", tmp_path / "of a file")


def test_a_catalogue_model_with_an_engine_needs_no_file(tmp_path: Path) -> None:
    entry = CATALOGUE["smollm2-135m-instruct"]
    source = resolve(entry.name, tmp_path, has_engine=lambda digest: digest == entry.checkpoint_digest)
    assert (source.kind, source.model_id, source.digest) == (SourceKind.GGUF, entry.name, entry.checkpoint_digest)
    assert not source.path.exists()


@pytest.mark.parametrize("name", ["llm.engine", "spec_base.engine", "llm.gguf", "other.engine"])
def test_an_engine_bundle_is_refused(tmp_path: Path, name: str) -> None:
    assert "an engine bundle, which is internal" in refusal(folder_with(tmp_path, "config.json", name), tmp_path)


def test_an_onnx_folder_is_refused(tmp_path: Path) -> None:
    assert "an ONNX model" in refusal(folder_with(tmp_path, "config.json", "model.onnx"), tmp_path)


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    assert "no config.json — give a checkpoint folder" in refusal(folder_with(tmp_path, "readme.md"), tmp_path)


def test_a_folder_of_gguf_files_is_answered_with_one_of_them(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "b.gguf", "a.gguf")
    assert f"give one of its files, such as {folder / 'a.gguf'}" in refusal(folder, tmp_path)


def test_pytorch_weights_are_refused(tmp_path: Path) -> None:
    assert "convert them to safetensors" in refusal(folder_with(tmp_path, "config.json", "pytorch_model.bin"), tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    assert "no weights (no .safetensors file)" in refusal(folder_with(tmp_path, "config.json"), tmp_path)


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    assert "no tokenizer.json" in refusal(folder_with(tmp_path, "config.json", "model.safetensors"), tmp_path)


def test_a_vocabulary_with_its_merges_is_a_tokenizer_too(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "config.json", "model.safetensors", "vocab.json")
    assert "no tokenizer.json" in refusal(folder, tmp_path)
    (folder / "merges.txt").touch()
    assert resolve(str(folder), tmp_path / "models").path == folder


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text("x")
    assert "not a GGUF file" in refusal(path, tmp_path)


@pytest.mark.parametrize("make", [lambda path: os.mkfifo(path)])
def test_what_is_neither_file_nor_folder_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "pipe.gguf")
    assert "neither a file nor a directory" in refusal(tmp_path / "pipe.gguf", tmp_path)


def test_a_name_too_long_for_the_file_system_is_refused(tmp_path: Path) -> None:
    assert refusal("x" * 5000, tmp_path)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"EDGELLM_CACHE_DIR": "/srv/cache", "XDG_CACHE_HOME": "/xdg", "HOME": "/home/a"}, "/srv/cache"),
        ({"XDG_CACHE_HOME": "/xdg", "HOME": "/home/a"}, "/xdg/edgellm"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/a"}, "/home/a/.cache/edgellm"),
        ({"HOME": "/home/a"}, "/home/a/.cache/edgellm"),
    ],
)
def test_the_cache_folder_follows_the_environment(environ: dict[str, str], expected: str) -> None:
    assert default_cache_dir(environ) == Path(expected)
