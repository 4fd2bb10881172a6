"""A tiny model for real worker processes, and what tests do with them again and again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.models.tiny_checkpoints import VARIANTS
from tests.models.tiny_gguf import write_gguf


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("workers") / "tiny.gguf", VARIANTS["llama"], "Q8_0")


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workers-cache")
