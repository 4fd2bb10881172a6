"""A model file of the right length whose weights are no numbers: found at the start, and called by its name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.http.daemon_process import Daemon
from tests.models.tiny_checkpoints import VARIANTS
from tests.models.tiny_gguf import write_gguf


@pytest.fixture(scope="module")
def flipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_gguf(tmp_path_factory.mktemp("flipped") / "flipped.gguf", VARIANTS["llama"], "Q8_0")
    whole = path.read_bytes()
    half = len(whole) // 2
    path.write_bytes(whole[:half] + b"\xff" * (len(whole) - half))
    return path


def test_serving_it_ends_as_with_any_damaged_model(flipped: Path, tmp_path: Path) -> None:
    daemon = Daemon(None, f"wrong={flipped}", "--cache-dir", str(tmp_path), "--threads", "1")
    try:
        assert daemon.exit_code() == 65
        assert f"model wrong ({flipped}): " in daemon.log
        assert "its weights seem damaged — fetch the file again" in daemon.log
        assert "edgellm engine verify" in daemon.log
    finally:
        daemon.stop()


def test_chat_in_process_says_the_same(flipped: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "edgellm", "chat", "--local", str(flipped), "hello"]
    environ = {**os.environ, "EDGELLM_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environ)
    assert done.returncode == 65, done.stderr
    assert f"({flipped}): " in done.stderr
    assert "its weights seem damaged — fetch the file again" in done.stderr
