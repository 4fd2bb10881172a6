"""EngineClient from loading to the last closed lane."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.serving.engine_scenario import everything, idle, job, run, serving
from tests.unit.serving.scripted_lane import ScriptedLane, say_words, settle, spec_of

from edgellm.errors import (
    CheckpointError,
    ModelLoadingError,
    ModelUnavailableError,
    ShuttingDownError,
)
from edgellm.serving.engine_client import EngineClient, GenerationJob
from edgellm.serving.model import ModelState
from edgellm.serving.model_spec import LoadProgress, ModelSpec, OpenedModel, ReportProgress


def test_draining_finishes_what_runs_and_refuses_the_rest() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(max_batch_size=1)
        async with serving(lane) as engine:
            running = await engine.generate(job("one"))
            queued = asyncio.create_task(engine.generate(job("two")))
            await settle()
            draining = asyncio.create_task(engine.drain(30))
            await settle()
            with pytest.raises(ShuttingDownError):
                await queued
            with pytest.raises(ShuttingDownError):
                await engine.generate(job("three"))
            assert not engine.ready
            lane.generations[0].say("end")
            lane.generations[0].finish()
            assert await everything(running) == {0: "end"}
            await draining

    run(scenario())


def test_what_outlives_the_drain_is_cancelled() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with serving(lane) as engine:
            running = await engine.generate(job())
            await engine.drain(0.01)
            with pytest.raises(ShuttingDownError):
                await running.next_deltas()
            assert idle(engine)

    run(scenario())


def test_closing_closes_every_lane_once() -> None:
    async def scenario() -> None:
        lanes = ScriptedLane(), ScriptedLane()
        async with serving(*lanes) as engine:
            await engine.close()
            await engine.close()
        assert [lane.closed for lane in lanes] == [1, 1]
        with pytest.raises(ShuttingDownError):
            await engine.generate(job())

    run(scenario())


def test_a_model_shows_its_stage_while_it_loads_and_is_ready_after_a_first_token() -> None:
    async def scenario() -> None:
        go_on = asyncio.Event()
        lane = ScriptedLane()

        async def slowly(report: ReportProgress) -> OpenedModel:
            report(LoadProgress("lowering", 0.5))
            await go_on.wait()
            return OpenedModel([lane], {"temperature": 0.3, "do_sample": True})

        engine = EngineClient([ModelSpec("tiny", slowly)])
        engine.start()
        await settle()
        assert engine.model("tiny").progress == LoadProgress("lowering", 0.5)
        with pytest.raises(ModelLoadingError):
            await engine.generate(job())
        assert not engine.ready
        go_on.set()
        await engine.opened()
        assert engine.ready
        assert engine.model("tiny").sampling.temperature == 0.3
        assert lane.occupied == 0
        await engine.close()
        assert engine.model("tiny").state is ModelState.UNLOADED

    run(scenario())


def test_a_model_that_does_not_load_costs_itself_only() -> None:
    async def scenario() -> None:
        async def fails(report: ReportProgress) -> OpenedModel:
            raise CheckpointError("the file is damaged")

        good = ScriptedLane(say_words("a"))
        engine = EngineClient([ModelSpec("broken", fails, required=False), spec_of(good)])
        engine.start()
        await engine.opened()
        assert engine.ready
        broken = engine.model("broken")
        assert (broken.state, type(broken.failure)) == (ModelState.UNAVAILABLE, CheckpointError)
        with pytest.raises(ModelUnavailableError):
            await engine.generate(GenerationJob("broken", job().prompts, "r"))
        assert await everything(await engine.generate(job())) == {0: "a"}
        await engine.close()

    run(scenario())


def test_closing_while_a_model_loads_gives_up_the_load() -> None:
    async def scenario() -> None:
        async def never(report: ReportProgress) -> OpenedModel:
            await asyncio.Event().wait()
            raise AssertionError

        engine = EngineClient([ModelSpec("tiny", never)])
        engine.start()
        await settle()
        await engine.close()
        assert engine.model("tiny").state is ModelState.UNLOADED

    run(scenario())
