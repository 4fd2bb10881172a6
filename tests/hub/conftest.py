"""A hub with a tiny model, and an environment in which nothing else is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hub.hub_server import HubServer, hub_server
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.models.tiny_gguf import write_gguf

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
HUB_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE")


@pytest.fixture(scope="session")
def checkpoint_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A sharded checkpoint as a repository has it, with what repositories hold beside it."""
    folder = write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny", VARIANTS["llama-bf16-sharded"])
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {
        **files,
        ".gitattributes": b"*.safetensors filter=lfs\n",
        "README.md": b"# A tiny model\n",
        "consolidated.safetensors": b"the same weights in another layout" * 100,
        "pytorch_model.bin": b"\x80\x02" * 4000,
        "pytorch_model.bin.index.json": b"{}",
        "figures/benchmark.png": b"\x89PNG" * 1000,
    }


@pytest.fixture(scope="session")
def gguf_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", VARIANTS["qwen3"], "Q8_0").read_bytes()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    for name in (
        *PROXY_VARIABLES,
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "HF_TOKEN_PATH",
        "CREDENTIALS_DIRECTORY",
        "HF_HUB_OFFLINE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    with hub_server() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


@pytest.fixture
def models_dir(tmp_path: Path) -> Path:
    return tmp_path / "models"
