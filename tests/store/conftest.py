"""Store processes of a test, all ended with it; a model that takes a moment to lower; small file systems."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.models.tiny_gguf import write_gguf

DEADLINE_SECONDS = 300
REPOSITORY = Path(__file__).parents[2]


class StoreProcess:
    """``python -m tests.store.store_process`` with its lines read as they come."""

    def __init__(self, source: Path, cache: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.store_process", str(source), str(cache), *options],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def lines(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def until(self, name: str) -> dict[str, Any]:
        """The first line with ``name`` in it."""
        seen = []
        for line in self.lines():
            if name in line:
                return line
            seen.append(line)
            if "leased" in line:  # it waits for us now
                break
        raise AssertionError(f"no line with {name!r}, but {seen}")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def pause(self) -> None:
        """Stop it where it is, with every lock it holds."""
        self.process.send_signal(signal.SIGSTOP)

    def end(self) -> list[dict[str, Any]]:
        """Let it go on to its end; the lines that were left."""
        out, _ = self.process.communicate(timeout=DEADLINE_SECONDS)
        return [json.loads(line) for line in out.splitlines()]


StartStore = Callable[..., StoreProcess]


@pytest.fixture
def start() -> Iterator[StartStore]:
    started: list[StoreProcess] = []

    def start_one(source: Path, cache: Path, *options: str) -> StoreProcess:
        started.append(StoreProcess(source, cache, *options))
        return started[-1]

    yield start_one
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


@pytest.fixture(scope="session")
def slow_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough that lowering it to four bits has moments between its first tensor and its last."""
    model = replace(VARIANTS["llama"], hidden_size=256, intermediate_size=1024, layer_count=12, seed=40)
    return write_checkpoint(tmp_path_factory.mktemp("slow") / "slow", model)


@pytest.fixture(scope="session")
def small_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("small") / "small.gguf", VARIANTS["qwen3"], "Q8_0")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def visible(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "engines").iterdir() if not path.name.endswith(".lock"))


@contextmanager
def mounted_memory(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own at ``folder``; skips the test by name where that needs rights we lack."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
