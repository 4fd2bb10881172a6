"""Speech recognition models by their id of a hub: only their files, one reference, and no text from them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import httpx
import openai
import pytest
from tests.http.daemon_process import Daemon
from tests.hub.hub_server import HubServer

from edgellm.engines.cache_directory import default_cache_dir
from edgellm.engines.cache_directory import models_dir as models_folder
from edgellm.engines.catalogue import CATALOGUE, install
from edgellm.engines.source import resolve
from edgellm.engines.whisper_folder import is_whisper, resolve_whisper
from edgellm.errors import ModelSourceError

ID = "tiny-org/faster-whisper-tiny"
SPOKEN = Path(__file__).parents[1] / "http" / "audio" / "spoken.ogg"
WAIT_SECONDS = 600.0
NEEDED = {
    "config.json": b"{}",
    "model.bin": b"\x06" * 4000,
    "preprocessor_config.json": b'{"feature_size": 80}',
    "tokenizer.json": b'{"model": {}}',
    "vocabulary.json": b"[]",
}
BESIDE = {".gitattributes": b"*.bin filter=lfs\n", "README.md": b"# Whisper\n", "model.onnx": b"onnx" * 1000}


def test_only_what_the_model_needs_is_fetched_and_stays(hub: HubServer, models_dir: Path) -> None:
    commit = hub.repository(ID, {**NEEDED, **BESIDE}).revisions["main"]
    assert not is_whisper(ID, models_dir)
    source = resolve_whisper(ID, models_dir)
    assert (source.model_id, source.path.name) == (ID, commit)
    assert {path.name: path.read_bytes() for path in source.path.iterdir()} == NEEDED
    asked = len(hub.requests)
    assert resolve_whisper(ID, models_dir, download=False) == source
    assert is_whisper(ID, models_dir)
    assert len(hub.requests) == asked


def test_one_that_is_not_here_says_how_it_comes(hub: HubServer, models_dir: Path) -> None:
    hub.repository(ID, NEEDED)
    with pytest.raises(
        ModelSourceError, match=f"not on this machine yet: it is not in {models_dir} — run: edgellm models add {ID}"
    ):
        resolve_whisper(ID, models_dir, download=False)


@pytest.mark.parametrize("lacking", ["model.bin", "config.json", "tokenizer.json", "vocabulary.json"])
def test_a_repository_that_lacks_a_file_is_refused_before_a_download(
    hub: HubServer, models_dir: Path, lacking: str
) -> None:
    hub.repository(ID, {name: data for name, data in NEEDED.items() if name != lacking})
    with pytest.raises(ModelSourceError, match=rf"^{ID}: no .*{lacking}.*ct2-transformers-converter"):
        resolve_whisper(ID, models_dir)
    assert not hub.saw("resolve/")


def test_it_makes_no_text_and_a_text_model_no_transcript(
    hub: HubServer, models_dir: Path, checkpoint_files: dict[str, bytes]
) -> None:
    hub.repository(ID, NEEDED)
    with pytest.raises(ModelSourceError, match='serve it with kind = "asr"'):
        resolve(ID, models_dir)
    resolve_whisper(ID, models_dir)
    with pytest.raises(ModelSourceError, match=f"{ID} transcribes speech: it has no engine"):
        resolve(ID, models_dir)
    hub.repository("tiny-org/text", checkpoint_files)
    resolve("tiny-org/text", models_dir)
    with pytest.raises(ModelSourceError, match='tiny-org/text is no speech recognition model — leave kind = "asr" out'):
        resolve_whisper("tiny-org/text", models_dir)


def test_the_command_adds_shows_and_removes_it(hub: HubServer, tmp_path: Path) -> None:
    hub.repository(ID, NEEDED)

    def edgellm(*words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "EDGELLM_CACHE_DIR": str(tmp_path / "cache")}
        return subprocess.run(
            [sys.executable, "-m", "edgellm", *words], capture_output=True, text=True, env=env, timeout=120, check=False
        )

    added = edgellm("models", "add", ID)
    assert added.returncode == 0, added.stderr
    assert "kind        speech recognition" in edgellm("models", "show", ID).stdout
    assert f"{ID}  " in edgellm("models", "list").stdout
    config = tmp_path / "edgellm.toml"
    config.write_text(f'[[models]]\nname = "ears"\nsource = "{added.stdout.strip()}"\nkind = "asr"\n')
    checked = edgellm("config", "check", "--config", str(config))
    assert checked.returncode == 0, checked.stderr
    assert "MB freed" in edgellm("models", "remove", ID).stdout
    assert not Path(added.stdout.strip()).exists()


@pytest.mark.skipif(
    importlib.util.find_spec("faster_whisper") is None and os.environ.get("EDGELLM_CI") != "1",
    reason="the audio extra is not installed: make test sets it up",
)
def test_a_daemon_fetches_it_while_it_loads_and_transcribes(hub: HubServer, tmp_path: Path) -> None:
    real = install(CATALOGUE["whisper-tiny.en"], models_folder(default_cache_dir(os.environ))).parent
    hub.repository(ID, {path.name: path.read_bytes() for path in real.iterdir()})
    config = tmp_path / "edgellm.toml"
    config.write_text(
        f'cache_dir = "{tmp_path}/cache"\n[workers]\nstep_deadline_seconds = {WAIT_SECONDS}\n'
        f'[[models]]\nsource = "{ID}"\nkind = "asr"\nthreads = 1\n'
    )
    daemon = Daemon(None, "--config", str(config))
    try:
        daemon.wait_for(lambda: daemon.get("/health/ready").status_code == httpx.codes.OK, WAIT_SECONDS)
        with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none", timeout=WAIT_SECONDS) as client:
            answer = client.audio.transcriptions.create(model=ID, file=SPOKEN)
        assert "quick brown fox" in answer.text.lower()
    finally:
        daemon.stop()
