"""Scenarios of an EngineClient over scripted lanes, and what tests ask about them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from tests.unit.serving.scripted_lane import ScriptedLane, spec_of

from edgellm.runtime.generation import GenerationRequest, TextPrompt
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.engine_client import EngineClient, GenerationJob
from edgellm.serving.generation import Generation
from edgellm.serving.settings import ServingSettings


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 30))


@asynccontextmanager
async def serving(*lanes: ScriptedLane, **settings: Any) -> AsyncIterator[EngineClient]:
    for number, lane in enumerate(lanes):
        lane.name = str(number)
    engine = EngineClient([spec_of(*lanes)], ServingSettings(**settings))
    engine.start()
    await engine.opened()
    try:
        yield engine
    finally:
        for lane in lanes:
            for generation in lane.generations:
                generation.let_go()
        await engine.close()


def job(
    request_id: str = "r", text: str = "Say hi", choices: int = 1, client: str = "", seed: int | None = None
) -> GenerationJob:
    request = GenerationRequest(TextPrompt(text), SamplingParams(seed=seed))
    return GenerationJob("tiny", [request], request_id, client, choices)


async def everything(generation: Generation) -> dict[int, str]:
    texts: dict[int, str] = {}
    while deltas := await generation.next_deltas():
        for item in deltas:
            texts[item.index] = texts.get(item.index, "") + item.delta.text
    return texts


def outcomes(engine: EngineClient) -> dict[str, float]:
    samples = [s for family in engine.counters.registry.collect() for s in family.samples]
    return {s.labels["outcome"]: s.value for s in samples if s.name == "edgellm_requests_total" and s.value}


def idle(engine: EngineClient) -> bool:
    gate = engine.model("tiny").admission
    return gate.running == gate.waiting == engine.running_requests == 0
