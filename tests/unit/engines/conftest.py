"""A tiny checkpoint and a tiny GGUF file, written once, and the catalogue's default model for tests marked model."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.models.tiny_gguf import write_gguf

from edgellm.engines.cache_directory import default_cache_dir, models_dir
from edgellm.engines.source import resolve


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


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The model of a fresh machine, downloaded when it is not there."""
    return resolve("smollm2-135m-instruct", models_dir(default_cache_dir(os.environ))).path
