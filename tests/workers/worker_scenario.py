"""An EngineClient over real worker processes."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgellm.runtime.generation import GenerationRequest, TextPrompt
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.engine_client import EngineClient, GenerationJob
from edgellm.serving.generation import Generation
from edgellm.serving.model import ServedModel
from edgellm.serving.model_spec import ModelSpec, OpenedModel, ReportProgress
from edgellm.serving.settings import ServingSettings
from edgellm.serving.worker.lane import WorkerLane
from edgellm.serving.worker.replicas import Replicas
from edgellm.serving.worker.settings import WorkerSettings, WorkerSpec

NAME = "tiny"
STATE_DEADLINE_SECONDS = 120.0
ROOT = Path(__file__).parents[2]
# Short, so that a test does not wait for long; what is right does not depend on them.
SETTINGS = WorkerSettings(
    start_deadline_seconds=10.0,
    ping_interval_seconds=0.1,
    ping_deadline_seconds=8.0,
    step_deadline_seconds=8.0,
    cancel_grace_seconds=3.0,
    restart_delay_seconds=0.05,
)


def stand_in(mode: str, bundle_dir: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerSpec:
    """A worker that misbehaves once it is warm; ``mode`` is one of stand_in_worker.py."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, sys.path)]))
    return WorkerSpec(NAME, {}, command=(sys.executable, "-m", "tests.workers.stand_in_worker", mode, str(bundle_dir)))


def real(model: Path, cache_dir: Path, **arguments: Any) -> WorkerSpec:
    chosen = {"model": str(model), "cache_dir": str(cache_dir), "runtime": "native", "threads": 1, **arguments}
    return WorkerSpec(NAME, chosen, log_level="warning")


def talkative(model: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerSpec:
    """A real worker that logs each pong, as talkative_worker.py says."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, sys.path)]))
    command = (sys.executable, "-m", "tests.workers.talkative_worker")
    return replace(real(model, cache_dir), log_level="error", command=command)


@asynccontextmanager
async def serving(
    spec: WorkerSpec, replicas: int = 1, settings: WorkerSettings = SETTINGS, **admission: Any
) -> AsyncIterator[EngineClient]:
    """A client whose model is open, or has failed to open."""
    specs = [replace(spec, name=f"{spec.name}/{number}", replica=number) for number in range(replicas)]

    async def open_model(report: ReportProgress) -> OpenedModel:
        return await Replicas(specs, settings, report).open()

    client = EngineClient([ModelSpec(NAME, open_model)], ServingSettings(**admission))
    client.start()
    try:
        await client.opened()
        yield client
    finally:
        await client.close()


def only_model(client: EngineClient) -> ServedModel:
    return client.model(NAME)


def lanes(client: EngineClient) -> list[WorkerLane]:
    return [lane for lane in only_model(client).lanes if isinstance(lane, WorkerLane)]


def pids(client: EngineClient) -> list[int]:
    return [lane.process.pid for lane in lanes(client)]


async def begin(client: EngineClient, max_tokens: int = 16, text: str = "hello", **params: Any) -> Generation:
    prompt = GenerationRequest(TextPrompt(text), SamplingParams(temperature=0, max_tokens=max_tokens, **params))
    return await client.generate(GenerationJob(NAME, [prompt], f"r{time.monotonic_ns()}"))


async def token_ids(generation: Generation) -> list[int]:
    taken: list[int] = []
    while deltas := await generation.next_deltas():
        for each in deltas:
            taken += each.delta.token_ids
    return taken


async def until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + STATE_DEADLINE_SECONDS
    while not reached():
        assert time.monotonic() < deadline, f"never came: {what}"
        await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
