"""What a container of the command on the host is shown: files that the words name, where they are, and nothing else."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.systemd.unit_file import SYSTEMD

PROGRAM = SYSTEMD / "container/usr/local/lib/edgellm/container-mounts"
ETC_LIKE = Path("/etc/hostname")  # a file in a folder that containers have of their own


def run(*words: str, here: str, writes: str = "ro", **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(PROGRAM), writes, here, *words]
    variables = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**variables, **environ})


def mounts(*words: str, here: str = "/", **environ: str) -> dict[str, str]:
    """By the place in the container: the folder or file of this machine."""
    ran = run(*words, here=here, **environ)
    assert ran.returncode == 0, ran.stderr
    found = {}
    for line in ran.stdout.splitlines():
        if line.startswith("--mount="):
            (fields,) = csv.reader([line.removeprefix("--mount=")])
            parts = dict(field.split("=", 1) for field in fields)
            assert parts.pop("type") == "bind"
            found[parts["destination"]] = parts["source"]
    return found


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "model.gguf").write_text("GGUF")
    return folder


@pytest.mark.parametrize("form", ["{}", "--from={}", "tiny={}", "--model=tiny={}"])
def test_a_file_s_folder_is_shown_where_it_is(models: Path, form: str) -> None:
    assert mounts(form.format(models / "model.gguf")) == {str(models): str(models)}


def test_a_relative_name_is_of_the_folder_that_the_command_is_called_in(models: Path, tmp_path: Path) -> None:
    assert mounts("models/model.gguf", here=str(tmp_path)) == {str(tmp_path): str(tmp_path), str(models): str(models)}
    assert f"--workdir={tmp_path}" in run("x", here=str(tmp_path)).stdout.splitlines()
    assert mounts("./models", here=str(models / "..")) == {str(tmp_path): str(tmp_path), str(models): str(models)}


def test_a_relative_name_behind_a_model_s_may_be_a_link(models: Path, tmp_path: Path) -> None:
    named = tmp_path / "named"
    named.mkdir()
    (named / "a=b.gguf").symlink_to(models / "model.gguf")
    assert str(models) in mounts("tiny=a=b.gguf", here=str(named))
    assert str(models) in mounts("a=b.gguf", here=str(named))


def test_where_a_link_leads_is_shown_too(models: Path, tmp_path: Path) -> None:
    """Also over several links, by absolute and relative texts, as the caches of hubs have them."""
    named, between = tmp_path / "named", tmp_path / "between"
    named.mkdir()
    between.mkdir()
    (between / "second").symlink_to("../models/model.gguf")
    (named / "first.gguf").symlink_to(between / "second")
    shown = mounts(str(named / "first.gguf"))
    assert shown == {str(folder): str(folder) for folder in (named, between, models)}


def test_links_in_a_folder_that_is_named_are_followed(models: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "snapshots/1"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").symlink_to("../../models/model.gguf")
    assert mounts(str(checkpoint)) == {str(checkpoint): str(checkpoint), str(models): str(models)}


def test_a_folder_that_is_a_link_is_shown_under_its_name(models: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("models")
    assert mounts(str(tmp_path / "link/model.gguf"))[str(tmp_path / "link")] == str(tmp_path / "link")
    # Of a relative link below it the container goes on from there.
    (models / "relative.gguf").symlink_to("../elsewhere/model.gguf")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/model.gguf").write_text("GGUF")
    shown = mounts(str(tmp_path / "link/relative.gguf"))
    assert shown[str(tmp_path / "elsewhere")] == str(tmp_path / "elsewhere")


def test_links_that_lead_nowhere_or_round_are_left_to_the_command(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "nowhere").symlink_to("/nowhere/at/all")
    assert mounts(str(tmp_path / "round"), str(tmp_path / "nowhere")) == {str(tmp_path): str(tmp_path)}


def test_a_file_in_a_folder_of_the_container_s_own_is_shown_alone() -> None:
    assert mounts(str(ETC_LIKE)) == {str(ETC_LIKE): os.path.realpath(ETC_LIKE)}
    ran = run("hostname", here="/etc")
    assert f"destination={ETC_LIKE}" in ran.stdout
    assert "--workdir=/etc" in ran.stdout.splitlines()


@pytest.mark.parametrize("word", ["/etc/new-key", "--output=/usr/new.engine", "/opt/new", "./new-key"])
def test_what_would_be_made_in_a_folder_of_the_container_s_own_is_refused_by_name(word: str) -> None:
    ran = run("engine", word, here="/etc")
    assert (ran.returncode, ran.stdout) == (64, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"edgellm: {word.rpartition('=')[2]} is not there, and a container has a /")
    assert line.endswith("name a file in another folder")


def test_such_a_folder_is_refused_by_name() -> None:
    ran = run("prewarm", "--import-from=/usr", here="/")
    assert (ran.returncode, ran.stdout) == (64, "")
    assert ran.stderr == "edgellm: /usr: a container has a /usr of its own — name a folder in it, or another\n"


def test_a_new_file_s_folder_is_shown(tmp_path: Path) -> None:
    assert mounts(str(tmp_path / "new.engine")) == {str(tmp_path): str(tmp_path)}


def test_a_question_that_looks_like_a_path_is_no_path() -> None:
    ran = run("chat", "/etc/shadow is what?", "/usr", here="/")
    assert ran.returncode == 0, ran.stderr
    assert "--mount" not in ran.stdout


def test_the_configuration_is_written_where_a_new_file_of_it_is_named() -> None:
    read_only, writable = ("--volume=/etc/edgellm:/etc/edgellm:" + mode for mode in ("ro", "rw"))
    assert read_only in run("engine", "list", here="/").stdout.splitlines()
    assert writable in run("engine", "keygen", "/etc/edgellm/signing", here="/").stdout.splitlines()
    assert writable in run("keys", "add", "phone", here="/", writes="rw").stdout.splitlines()


def test_names_with_commas_quotes_and_colons_are_shown(tmp_path: Path) -> None:
    folder = tmp_path / 'a:b,c "d"'
    folder.mkdir()
    assert mounts("x", here=str(folder)) == {str(folder): str(folder)}


def test_a_name_with_a_line_break_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a\nb"
    folder.mkdir()
    ran = run("x", here=str(folder))
    assert (ran.returncode, len(ran.stderr.splitlines())) == (64, 1)


def test_certificates_that_the_caller_trusts_are_shown(models: Path) -> None:
    assert mounts("chat", "Hello.", SSL_CERT_FILE=str(models / "model.gguf")) == {str(models): str(models)}


def test_the_kernel_s_and_shared_folders_stay_as_they_are() -> None:
    ran = run("/dev/stdin", "/proc/self/status", "/var/lib/edgellm", "/run/edgellm", here="/")
    assert ran.returncode == 0, ran.stderr
    assert "--mount" not in ran.stdout


def test_the_host_s_own_tmp_is_shown_where_it_is_meant() -> None:
    assert "--tmpfs=/tmp" not in run("x", here="/tmp").stdout.splitlines()
    assert "--tmpfs=/tmp" in run("x", here="/").stdout.splitlines()
