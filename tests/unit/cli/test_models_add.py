"""``edgellm models add`` takes the beginning of a name where it means one model alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgellm.cli.main import main
from edgellm.engines import catalogue


@pytest.mark.parametrize(("name", "meant"), [("whisper", "whisper-tiny.en"), ("voice", "voice")])
def test_a_name_s_beginning_is_enough(
    name: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDGELLM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(catalogue, "install", lambda entry, folder, show: folder / entry.name)
    assert main(["models", "add", name]) == 0
    assert Path(capsys.readouterr().out.strip()).name == meant


def test_a_beginning_of_no_model_is_refused_with_those_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDGELLM_CACHE_DIR", str(tmp_path))
    assert main(["models", "add", "whisperer"]) == 64
    assert "whisper-tiny.en" in capsys.readouterr().err
