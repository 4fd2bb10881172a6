"""What the program that builds the image says of the sources that it is given."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
from tests.lab.container_image import CHECKOUT

from edgellm.service.install.installation import USER_NUMBER

TIME_SECONDS = "315532800"
TIME = "1980-01-01T00:00:00+00:00"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """For a checkout in an empty folder."""
    loader = SourceFileLoader("build_container", str(CHECKOUT / "image/build-container"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, loader.name, module)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    monkeypatch.setattr(module, "CHECKOUT", tmp_path)
    return module


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--colour"], "unrecognized arguments: --colour"),
        (["--tensorrt", "maybe"], "argument --tensorrt: invalid choice"),
        (["--archive", ""], "argument --archive: an empty text names no file or folder"),
    ],
)
def test_wrong_arguments_are_one_line(
    program: ModuleType, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(words) == program.EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert line.endswith("see image/build-container --help")


def test_sources_without_a_commit_have_the_time_of_their_layers(program: ModuleType) -> None:
    assert program.revision_and_time(TIME_SECONDS) == ("unknown", TIME)


def test_a_checkout_of_another_user_has_its_commit(program: ModuleType, tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=one", "-c", "user.email=one@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message=one"], check=True)
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, USER_NUMBER, USER_NUMBER)
    refused = subprocess.run(["git", "-C", str(tmp_path), "log"], capture_output=True, text=True, check=False)
    assert "dubious ownership" in refused.stderr
    revision, created = program.revision_and_time(TIME_SECONDS)
    assert len(revision) == 40
    assert created != TIME
