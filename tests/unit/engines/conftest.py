"""A tiny checkpoint and a tiny GGUF file, written once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.models.tiny_gguf import write_gguf


@pytest.fixture(scope="session")
def pristine_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read only: tests that change a file copy it."""
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", VARIANTS["qwen3"], "Q8_0")


@pytest.fixture(scope="session")
def pristine_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read only: tests that change a file copy the directory."""
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny", VARIANTS["llama-bf16-sharded"])


@pytest.fixture
def gguf_copy(pristine_gguf: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(pristine_gguf, tmp_path / "copy.gguf"))


@pytest.fixture
def checkpoint_copy(pristine_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine_checkpoint, tmp_path / "tiny"))
