"""What the program that builds the image says of the sources that it is given."""

from __future__ import annotations

import configparser
import os
import shutil
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
        (["--native", ""], "argument --native: an empty text names no file or folder"),
        (["--engines", ""], "argument --engines: an empty text names no file or folder"),
        (["--archive", ""], "argument --archive: an empty text names no file or folder"),
        (["--base", ""], "argument --base: an empty text names no image"),
        (["--builder", ""], "argument --builder: an empty text names no program"),
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


@pytest.fixture
def nothing_is_built(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pip of this machine's counts, and what begins a build fails."""
    for variable in ("PIP_CONFIG_FILE", "PIP_CERT", "SOURCE_DATE_EPOCH", *program.CERTIFICATE_VARIABLES):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(program, "PIP_FILES", ())

    def version() -> str:
        raise AssertionError("it went on to the build")

    monkeypatch.setattr(program, "version_of_checkout", version)


def refusal(program: ModuleType, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = program.main(words)
    (line,) = capsys.readouterr().err.splitlines()
    return code, line


@pytest.mark.usefixtures("nothing_is_built")
def test_an_archive_that_cannot_be_written_is_refused_before_the_build(
    program: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, line = refusal(program, capsys, "--archive", str(tmp_path / "absent/x.tar"))
    assert (code, line) == (64, f"edgellm: --archive {tmp_path}/absent/x.tar: {tmp_path}/absent is no folder")
    assert "is a folder" in refusal(program, capsys, "--archive", str(tmp_path))[1]
    os.mkfifo(tmp_path / "pipe")
    assert "is no plain file, and is not replaced" in refusal(program, capsys, "--archive", str(tmp_path / "pipe"))[1]
    buildah = tmp_path / "bin/buildah"
    buildah.parent.mkdir()
    buildah.write_text("#!/bin/sh\n")
    buildah.chmod(0o755)
    monkeypatch.setenv("PATH", str(buildah.parent))
    code, line = refusal(program, capsys, "--archive", str(tmp_path / "x.tar"))
    assert code == program.EXIT_UNAVAILABLE
    assert "written by podman" in line


@pytest.mark.usefixtures("nothing_is_built")
def test_inputs_that_are_not_what_they_should_be_are_named(
    program: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a folder/one").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no module")
    for words, said in (
        (("--native", "nowhere"), "--native nowhere is no file"),
        (("--native", "a folder"), "--native a folder is no file"),
        (("--native", "text"), "--native text is no compiled module (_native.….so)"),
        (("--engines", "nowhere"), "--engines nowhere is no folder"),
        (("--engines", "text"), "--engines text is no folder"),
        (("--engines", "empty"), "--engines empty is to be a folder of engine bundles, and it is empty"),
        (
            ("--engines", "a folder"),
            "a folder is to be a folder of engine bundles, and one in it is none: no manifest.json",
        ),
    ):
        code, line = refusal(program, capsys, *words)
        assert code == program.EXIT_USAGE
        assert line.endswith(said), line


@pytest.mark.usefixtures("nothing_is_built")
@pytest.mark.parametrize("variable", ["PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_certificates_that_are_not_there_are_named(
    program: ModuleType, variable: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "/nowhere/ca.pem")
    code, line = refusal(program, capsys)
    assert code == program.EXIT_CONFIG
    assert variable in line
    assert line.endswith("names /nowhere/ca.pem: No such file or directory")


@pytest.mark.usefixtures("nothing_is_built")
@pytest.mark.parametrize("content", [b"index-url = x\n", b"[global\n", b"[global]\nindex-url = \xff\xfe\n"])
def test_a_damaged_configuration_of_pip_is_named(
    program: ModuleType,
    content: bytes,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "pip.conf"
    file.write_bytes(content)
    with pytest.raises((configparser.Error, ValueError)):
        configparser.RawConfigParser().read(file)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    code, line = refusal(program, capsys)
    assert code == program.EXIT_CONFIG
    assert f"{file}: it is no configuration of pip" in line


@pytest.mark.usefixtures("nothing_is_built")
def test_a_time_that_is_none_is_named(
    program: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    code, line = refusal(program, capsys)
    assert (code, line) == (program.EXIT_CONFIG, "edgellm: SOURCE_DATE_EPOCH=yesterday is no number of seconds")


@pytest.mark.usefixtures("nothing_is_built")
def test_a_folder_of_anything_but_engine_bundles_is_refused(
    program: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engines = tmp_path / "engines"
    engines.mkdir()
    assert "it is empty" in refusal(program, capsys, "--engines", str(engines))[1]
    (engines / "smollm2").mkdir()
    (engines / "smollm2/manifest.json").write_text("{}")
    for name in ("holidays", "notes.txt"):
        (engines / name).mkdir()
    code, line = refusal(program, capsys, "--engines", str(engines))
    assert code == program.EXIT_USAGE
    assert line.endswith("and holidays, notes.txt in it is none: no manifest.json")
    assert "it is a bundle itself" in refusal(program, capsys, "--engines", str(engines / "smollm2"))[1]
    for name in ("holidays", "notes.txt"):
        (engines / name).rmdir()
    (engines / ".unfinished").mkdir()
    program.refuse_what_is_no_bundle(engines)


@pytest.mark.skipif(shutil.which("podman") is None, reason="podman is not on this machine")
def test_an_archive_that_cannot_be_made_leaves_the_one_that_is_there(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "edgellm.tar"
    file.write_text("of before")
    monkeypatch.setattr(program, "NAME", "localhost/no-such-image")
    with pytest.raises(subprocess.CalledProcessError):
        program.write_archive(file)
    assert [path.name for path in tmp_path.iterdir()] == ["edgellm.tar"]
    assert file.read_text() == "of before"
