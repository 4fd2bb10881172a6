from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint

from edgellm.cli.main import main


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("archive") / "tiny", VARIANTS["llama"])


class Board:
    """``edgellm engine`` with a cache of its own; ``answers`` is what it printed as JSON."""

    def __init__(self, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._cache = cache
        self._capsys = capsys
        self.error = ""

    def run(self, *words: object) -> int:
        self._capsys.readouterr()
        return main(["engine", *map(str, words), "--cache-dir", str(self._cache)])

    def answer(self, *words: object) -> Any:
        code = self.run(*words, "--json")
        captured = self._capsys.readouterr()
        assert code == 0, captured.err
        return json.loads(captured.out)

    def refusal(self, code: int, *words: object) -> str:
        assert self.run(*words) == code
        line = self._capsys.readouterr().err.splitlines()[-1]
        assert line.startswith("edgellm: ")
        return line


@pytest.fixture
def maker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Board:
    return Board(tmp_path / "maker", capsys)


@pytest.fixture
def taker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Board:
    return Board(tmp_path / "taker", capsys)


def test_an_engine_is_exported_by_model_name_or_key_and_imported(
    maker: Board, taker: Board, checkpoint: Path, tmp_path: Path
) -> None:
    (built,) = maker.answer("build", checkpoint)
    by_model = maker.answer("export", checkpoint, tmp_path / "by-model")
    by_name = maker.answer("export", built["name"], tmp_path / "by-name")
    by_key = maker.answer("export", built["key"][:8], tmp_path / "by-key")
    assert by_model["key"] == by_name["key"] == by_key["key"] == built["key"]
    contents = {(tmp_path / name).read_bytes() for name in ("by-model", "by-name", "by-key")}
    assert len(contents) == 1
    assert by_model["size_bytes"] == len(contents.pop())
    taken = taker.answer("import", tmp_path / "by-model")
    assert (taken["key"], taken["was_there"], taken["signed_by"]) == (built["key"], False, None)
    assert taker.answer("import", tmp_path / "by-model")["was_there"]
    (explained,) = taker.answer("explain", checkpoint)
    assert explained["outcome"] == "hit"


def test_an_engine_that_is_not_built_is_not_exported(maker: Board, checkpoint: Path, tmp_path: Path) -> None:
    message = maker.refusal(72, "export", checkpoint, tmp_path / "x")
    assert "run edgellm engine build" in message
    message = maker.refusal(64, "export", "no-such-thing", tmp_path / "x")
    assert "there is no engine 'no-such-thing'" in message
    assert not (tmp_path / "x").exists()


def test_a_signed_engine_is_taken_where_its_key_is_trusted(
    maker: Board, taker: Board, checkpoint: Path, tmp_path: Path
) -> None:
    key = maker.answer("keygen", tmp_path / "key", "--name", "fleet-2026")
    (tmp_path / "trusted").write_text(key["trusted_key"] + "\n")
    maker.answer("build", checkpoint)
    maker.answer("export", checkpoint, tmp_path / "plain")
    maker.answer("export", checkpoint, tmp_path / "signed", "--sign", tmp_path / "key")
    trusting = ("--trusted-keys-file", tmp_path / "trusted")
    assert "not signed" in taker.refusal(77, "import", tmp_path / "plain", *trusting)
    assert taker.answer("import", tmp_path / "signed", *trusting)["signed_by"] == "fleet-2026"
    assert "never overwritten" in maker.refusal(78, "keygen", tmp_path / "key")


def test_the_configuration_says_who_is_trusted(maker: Board, taker: Board, checkpoint: Path, tmp_path: Path) -> None:
    maker.answer("build", checkpoint)
    maker.answer("export", checkpoint, tmp_path / "plain")
    (tmp_path / "trusted").write_text("# nobody\n")
    config = tmp_path / "edgellm.toml"
    config.write_text(f'[engines]\ntrusted_keys_file = "{tmp_path / "trusted"}"\n')
    assert "not signed" in taker.refusal(77, "import", tmp_path / "plain", "--config", config)


def test_an_engine_goes_into_the_folder_of_an_image(
    maker: Board, taker: Board, checkpoint: Path, tmp_path: Path
) -> None:
    maker.answer("build", checkpoint)
    maker.answer("export", checkpoint, tmp_path / "archive")
    maker.answer("import", tmp_path / "archive", "--into", tmp_path / "image")
    config = tmp_path / "edgellm.toml"
    config.write_text(f'[engines]\nread_only_dirs = ["{tmp_path / "image"}"]\nbuild_on_start = false\n')
    (explained,) = taker.answer("explain", checkpoint, "--config", config)
    assert explained["outcome"] == "hit"
    assert Path(explained["engine"]).parent == tmp_path / "image"


def test_a_damaged_archive_is_one_line_and_an_exit_code(taker: Board, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"no archive")
    assert "no engine archive" in taker.refusal(65, "import", tmp_path / "x")
    assert "No such file" in taker.refusal(78, "import", tmp_path / "nowhere")
