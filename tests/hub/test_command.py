"""``edgellm`` as a command, with ids of a hub: real processes, a real daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.http.daemon_process import MODEL, Daemon
from tests.hub.hub_server import KNOWN_USER, HubServer
from tests.models.tiny_vision import VISION_VARIANTS, write_vision_checkpoint

from edgellm.engines.hub.named_models import NAMED_MODELS

ID = "tiny-org/tiny-model"
DEADLINE_SECONDS = 120


def edgellm(*words: str, cache: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "EDGELLM_CACHE_DIR": str(cache), **variables}
    return subprocess.run(
        [sys.executable, "-m", "edgellm", *words],
        capture_output=True,
        text=True,
        env=env,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_models_add_list_and_show_an_id(hub: HubServer, checkpoint_files: dict[str, bytes], cache: Path) -> None:
    commit = hub.repository(ID, checkpoint_files).revisions["main"]
    added = edgellm("models", "add", ID, cache=cache)
    assert added.returncode == 0, added.stderr
    path = Path(added.stdout.strip())
    assert path.name == commit
    assert "downloading" in added.stderr
    listed = edgellm("models", "list", cache=cache).stdout
    assert f"{ID}  " in listed
    assert commit[:12] in listed
    shown = edgellm("models", "show", ID, cache=cache).stdout
    assert f"name        {ID}" in shown
    assert edgellm("models", "show", "--path", ID, cache=cache).stdout.strip() == str(path)
    assert "MB freed" in edgellm("models", "remove", ID, cache=cache).stdout
    assert not path.exists()
    assert edgellm("models", "remove", ID, cache=cache).returncode == 64


def test_nothing_but_the_model_is_asked_for(hub: HubServer, checkpoint_files: dict[str, bytes], cache: Path) -> None:
    hub.repository(ID, checkpoint_files)
    assert edgellm("models", "add", ID, cache=cache).returncode == 0
    unrelated = [seen.path for seen in hub.requests if ID not in seen.path]
    assert unrelated == []


def test_a_failure_is_one_line_and_an_exit_code(hub: HubServer, cache: Path) -> None:
    hub.repository(ID, {"config.json": b"{}", "model.onnx": b"x"}, private=True)
    refused = edgellm("models", "add", ID, cache=cache)
    assert (refused.returncode, refused.stderr.count("\n")) == (66, 2)
    assert "has no such repository" in refused.stderr.splitlines()[-1]
    wrong = {"HF_TOKEN": "hf_wrong"}
    denied = edgellm("models", "add", ID, cache=cache, **wrong)
    assert denied.returncode == 77
    assert "hf_wrong" not in denied.stderr
    onnx = edgellm("models", "add", ID, cache=cache, HF_TOKEN=KNOWN_USER)
    assert onnx.returncode == 66
    assert "an ONNX model, which is not supported" in onnx.stderr
    offline = edgellm("models", "add", ID, cache=cache, HF_HUB_OFFLINE="1")
    assert offline.returncode == 75
    assert "HF_HUB_OFFLINE" in offline.stderr


def test_a_model_of_images_has_a_name_its_licence_and_its_size(hub: HubServer, cache: Path, tmp_path: Path) -> None:
    named = NAMED_MODELS["smolvlm-256m-instruct"]
    listed = edgellm("models", "list", cache=cache).stdout
    assert f"{named.name}  517 MB  Apache-2.0  edgellm models add {named.name}" in listed
    folder = write_vision_checkpoint(tmp_path / "checkpoint", VISION_VARIANTS["smolvlm"])
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    commit = hub.repository(named.repository, files).revisions["main"]
    added = edgellm("models", "add", named.name, cache=cache)
    assert added.returncode == 0, added.stderr
    assert Path(added.stdout.strip()).name == commit
    listed = edgellm("models", "list", cache=cache).stdout
    assert f"{named.name}  517 MB  Apache-2.0  on this machine" in listed
    shown = edgellm("models", "show", named.name, cache=cache).stdout
    assert f"name        {named.repository}" in shown
    assert "family      smolvlm (text and images)" in shown
    assert edgellm("models", "remove", named.name, cache=cache).returncode == 0
    offline = edgellm("models", "add", named.name, cache=cache, HF_HUB_OFFLINE="1")
    assert (offline.returncode, offline.stderr.count("\n")) == (75, 1)
    assert f"{named.repository} is not on this machine, and HF_HUB_OFFLINE forbids to fetch it" in offline.stderr


@pytest.fixture
def daemons() -> Iterator[list[Daemon]]:
    running: list[Daemon] = []
    yield running
    for daemon in running:
        daemon.stop()


def test_serve_fetches_an_id_and_serves_it_without_the_hub(
    hub: HubServer, checkpoint_files: dict[str, bytes], cache: Path, daemons: list[Daemon]
) -> None:
    hub.repository(ID, checkpoint_files)
    env = {**os.environ, "EDGELLM_CACHE_DIR": str(cache)}
    first = Daemon(Path(ID), env=env)
    daemons.append(first)
    first.wait_until_ready()
    said = first.text("Say hello.")
    first.stop()
    hub.close()
    second = Daemon(Path(ID), env=env)
    daemons.append(second)
    assert second.wait_until_ready().text("Say hello.") == said
    assert MODEL in second.health()["models"]


def test_a_board_without_a_network_serves_an_id_from_an_archive(
    hub: HubServer, checkpoint_files: dict[str, bytes], cache: Path, tmp_path: Path, daemons: list[Daemon]
) -> None:
    """Built and exported on one board; imported on another, which has neither checkpoint nor hub and builds nothing."""
    hub.repository(ID, checkpoint_files)
    assert edgellm("engine", "build", ID, cache=cache).returncode == 0
    exported = edgellm("engine", "export", ID, str(tmp_path / "archive"), cache=cache)
    assert exported.returncode == 0, exported.stderr
    hub.close()
    board = tmp_path / "board"
    imported = edgellm("engine", "import", str(tmp_path / "archive"), cache=board)
    assert imported.returncode == 0, imported.stderr
    listed = edgellm("models", "list", cache=board).stdout
    assert f"{ID}  engine without checkpoint" in listed
    env = {**os.environ, "EDGELLM_CACHE_DIR": str(board), "HF_HUB_OFFLINE": "1"}
    daemon = Daemon(Path(ID), "--no-build-on-start", env=env)
    daemons.append(daemon)
    assert daemon.wait_until_ready().text("Say hello.")
    shown = edgellm("models", "show", ID, cache=board)
    assert (shown.returncode, "came without its checkpoint" in shown.stderr) == (66, True)


def test_an_image_resolves_an_id_and_keeps_it(
    hub: HubServer, checkpoint_files: dict[str, bytes], cache: Path, tmp_path: Path
) -> None:
    commit = hub.repository(ID, checkpoint_files).revisions["main"]
    assert edgellm("engine", "build", ID, cache=cache).returncode == 0
    assert edgellm("engine", "export", ID, str(tmp_path / "archive"), cache=cache).returncode == 0
    image, board = tmp_path / "image", tmp_path / "board"
    assert edgellm("engine", "import", str(tmp_path / "archive"), "--into", str(image), cache=board).returncode == 0
    config = tmp_path / "edgellm.toml"
    config.write_text(f'[engines]\nread_only_dirs = ["{image}"]\nbuild_on_start = false\n')
    asked = len(hub.requests)
    explained = edgellm("engine", "explain", ID, "--config", str(config), cache=board)
    assert explained.stdout.startswith("HIT"), explained.stderr
    added = edgellm("models", "add", ID, "--config", str(config), cache=board)
    assert added.returncode == 64
    assert f"came with this image, at commit {commit}" in added.stderr
    assert len(hub.requests) == asked


def test_where_nothing_is_built_nothing_is_fetched(
    hub: HubServer, checkpoint_files: dict[str, bytes], cache: Path, daemons: list[Daemon]
) -> None:
    hub.repository(ID, checkpoint_files)
    env = {**os.environ, "EDGELLM_CACHE_DIR": str(cache)}
    daemon = Daemon(Path(ID), "--no-build-on-start", env=env)
    daemons.append(daemon)
    assert daemon.exit_code() == 66
    daemon.stop()
    assert f"run: env EDGELLM_CACHE_DIR={cache} edgellm models add {ID}" in daemon.log
    assert hub.requests == []


def test_serve_ends_with_the_reason_when_there_is_no_such_model(
    hub: HubServer, cache: Path, daemons: list[Daemon]
) -> None:
    daemon = Daemon(Path(ID), env={**os.environ, "EDGELLM_CACHE_DIR": str(cache)})
    daemons.append(daemon)
    assert daemon.exit_code() == 66
    daemon.stop()
    assert "has no such repository" in daemon.log
    assert "Traceback" not in daemon.log


def test_the_library_is_loaded_only_for_what_must_be_fetched(
    hub: HubServer, checkpoint_files: dict[str, bytes], cache: Path
) -> None:
    hub.repository(ID, checkpoint_files)
    program = (
        "import sys, pathlib, edgellm.engines.source as s, edgellm.cli.main, edgellm.service.models\n"
        "s.resolve(sys.argv[1], pathlib.Path(sys.argv[2]))\n"
        "print('huggingface_hub' in sys.modules)"
    )
    answers = [
        subprocess.run(
            [sys.executable, "-c", program, ID, str(cache / "models")], capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(2)
    ]
    assert answers == ["True", "False"]
