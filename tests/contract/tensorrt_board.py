"""A board where TensorRT was selected, with a scripted module in the place of the one that needs a GPU.

Models are built there by the stand-in builder, and loaded by the product's own code.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.contract.checkpoint_configs import write_files
from tests.contract.nvidia_binary import NvidiaBinary
from tests.contract.stand_in_builder import PLACEHOLDER
from tests.models.safetensors_writer import write_safetensors
from tests.unit.api.asgi_client import AsgiClient, application
from tests.unit.engines.jetson_platforms import ORIN
from tests.unit.runtime.scripted_runtime import ScriptedModule

from edgellm.api.settings import ApiSettings
from edgellm.engines import store
from edgellm.runtime import engine_builders, loader, modules, tensorrt_load, tensorrt_speaker
from edgellm.runtime.llm import LLM
from edgellm.runtime.modules import SelectedRuntime
from edgellm.serving.engine_client import EngineClient
from edgellm.serving.model_spec import ModelSpec, OpenedModel, ReportProgress
from edgellm.serving.opened_llm import opened_llm

REPOSITORY = Path(__file__).parents[2]

OnBoard = Callable[[ScriptedModule], None]


@pytest.fixture
def on_board(nvidia_binary: NvidiaBinary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OnBoard:
    """Puts a scripted module onto the board."""

    def put(scripted: ScriptedModule) -> None:
        facts = ORIN.facts(tmp_path / "board")
        selected = SelectedRuntime("tensorrt", scripted, "a test")  # type: ignore[arg-type]
        monkeypatch.setattr(loader, "select_runtime", lambda choice: selected)
        monkeypatch.setattr(modules, "select_runtime", lambda choice: selected)
        monkeypatch.setattr(engine_builders, "platform_facts", lambda: facts)
        monkeypatch.setattr(engine_builders, "builder_module", lambda: "tests.contract.stand_in_builder")
        # What a real builder and a real engine take is more than these tests need of the machine that runs them.
        for each in (store, tensorrt_load, tensorrt_speaker):
            monkeypatch.setattr(each, "require_memory", lambda *_: None)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(nvidia_binary.site), str(REPOSITORY))))

    return put


@asynccontextmanager
async def served(
    open_llm: Callable[[], LLM], settings: ApiSettings | None = None
) -> AsyncIterator[tuple[AsgiClient, EngineClient]]:
    """The application over that model, whose name is ``omni``."""

    async def open_model(report: ReportProgress) -> OpenedModel:
        return opened_llm(await asyncio.to_thread(open_llm))

    async with application(specs=[ModelSpec(name="omni", open=open_model)], settings=settings) as (client, engine):
        yield client, engine


def described(folder: Path, config: dict[str, Any]) -> str:
    """A checkpoint that is a configuration alone."""
    write_files(folder, {"config.json": {"hidden_size": 64, **config}, "tokenizer.json": {}})
    write_safetensors(folder / PLACEHOLDER, {"a": np.zeros(1, np.float32)}, "f32")
    return str(folder)
