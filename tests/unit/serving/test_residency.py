"""Who makes room for a model of which the size is not known: nobody before it is known to be loadable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.unit.serving.engine_scenario import everything, run
from tests.unit.serving.scripted_lane import ScriptedLane, say_words, settle, spec_of

from edgellm.errors import CheckpointError, EdgeLLMError, InsufficientMemoryError, ModelUnavailableError
from edgellm.runtime.generation import GenerationRequest, TextPrompt
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.engine_client import EngineClient, GenerationJob
from edgellm.serving.model import ModelState
from edgellm.serving.model_spec import ModelSpec, OpenedModel, ReportProgress
from edgellm.serving.settings import ServingSettings

ROOM_BYTES = 100
SETTINGS = ServingSettings(model_memory_bytes=ROOM_BYTES, min_resident_seconds=0.0)


def sized(size_bytes: int | None) -> Callable[[], Awaitable[int | None]]:
    async def estimate() -> int | None:
        return size_bytes

    return estimate


def served(name: str, size_bytes: int | None) -> ModelSpec:
    lane = ScriptedLane(say_words("well"))
    return spec_of(lane, name=name, on_demand=True, estimate_bytes=sized(size_bytes))


async def started(*specs: ModelSpec) -> EngineClient:
    engine = EngineClient(specs, SETTINGS)
    engine.start()
    await engine.opened()
    return engine


async def ask(engine: EngineClient, name: str) -> None:
    job = GenerationJob(name, [GenerationRequest(TextPrompt("hi"), SamplingParams())], "r")
    assert await everything(await engine.generate(job)) == {0: "well"}


def test_a_model_that_a_second_look_finds_damaged_makes_nobody_leave() -> None:
    async def scenario() -> None:
        async def damaged() -> int | None:
            raise CheckpointError("/srv/models/broken.gguf is damaged")

        broken = spec_of(ScriptedLane(), name="broken", on_demand=True, required=False, estimate_bytes=damaged)
        engine = await started(served("a", 60), broken)
        await ask(engine, "a")
        with pytest.raises(ModelUnavailableError, match=r"could not be loaded: its files are damaged\.$"):
            await ask(engine, "broken")
        assert engine.model("a").state is ModelState.READY
        assert engine.model("broken").openings_total == 0
        await engine.close()

    run(scenario())


def test_a_model_of_known_size_that_was_damaged_since_makes_nobody_leave() -> None:
    async def scenario() -> None:
        is_damaged = False

        async def estimate() -> int | None:
            if is_damaged:
                raise CheckpointError("/srv/models/b.gguf is damaged")
            return 70

        b = spec_of(ScriptedLane(say_words("well")), name="b", on_demand=True, estimate_bytes=estimate)
        engine = await started(served("a", 60), b)
        assert engine.model("b").memory_bytes == 70
        await ask(engine, "a")
        is_damaged = True
        with pytest.raises(ModelUnavailableError, match=r"could not be loaded: its files are damaged\.$"):
            await ask(engine, "b")
        assert engine.model("a").state is ModelState.READY
        assert engine.model("a").swaps_total == engine.model("b").openings_total == 0
        await engine.close()

    run(scenario())


def test_a_model_is_looked_into_once_each_time_that_others_leave_for_it() -> None:
    async def scenario() -> None:
        looks = 0

        async def estimate() -> int | None:
            nonlocal looks
            looks += 1
            return 70

        b = spec_of(ScriptedLane(say_words("well")), name="b", on_demand=True, estimate_bytes=estimate)
        engine = await started(served("a", 60), b)
        assert looks == 1
        await ask(engine, "b")  # there is room
        assert looks == 1
        for swaps in (1, 2):
            await ask(engine, "a")
            await ask(engine, "b")
            assert looks == 1 + swaps
        assert engine.model("a").swaps_total == 2
        await engine.close()

    run(scenario())


@pytest.mark.parametrize("out_of_room", [False, True])
def test_a_model_of_unknown_size_is_opened_beside_the_others_and_alone_once_that_has_failed(
    out_of_room: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        opened_beside: list[bool] = []

        async def open_lanes(report: ReportProgress) -> OpenedModel:
            opened_beside.append(engine.model("a").state is ModelState.READY)
            if out_of_room and opened_beside[-1]:
                raise InsufficientMemoryError("it needs more than there is")
            return OpenedModel([ScriptedLane(say_words("well"))], memory_bytes=lambda: 30)

        unknown = ModelSpec("unknown", open_lanes, on_demand=True, estimate_bytes=sized(None))
        engine = await started(served("a", 60), unknown)
        await ask(engine, "a")
        await ask(engine, "unknown")
        assert opened_beside == ([True, False] if out_of_room else [True])
        left = engine.model("a").state is ModelState.UNLOADED
        assert left is out_of_room
        assert ("unloaded model a: room for unknown" in caplog.messages) is out_of_room
        await engine.close()

    caplog.set_level("INFO")
    run(scenario())


def test_a_model_that_is_whole_again_gets_the_room_that_it_needs() -> None:
    async def scenario() -> None:
        sizes: list[int | EdgeLLMError] = [CheckpointError("damaged"), 70]

        async def estimate() -> int | None:
            found = sizes.pop(0)
            if isinstance(found, EdgeLLMError):
                raise found
            return found

        mended = spec_of(
            ScriptedLane(say_words("well")), name="mended", on_demand=True, required=False, estimate_bytes=estimate
        )
        engine = await started(served("a", 60), mended)
        await ask(engine, "a")
        await ask(engine, "mended")
        assert engine.model("a").state is ModelState.UNLOADED
        await engine.close()

    run(scenario())


def test_a_model_counts_what_it_may_grow_to_and_not_what_it_took_before_it_was_used() -> None:
    async def scenario() -> None:
        async def open_lanes(report: ReportProgress) -> OpenedModel:
            return OpenedModel([ScriptedLane(say_words("well"))], memory_bytes=lambda: 20)

        small_at_first = ModelSpec("growing", open_lanes, on_demand=True, estimate_bytes=sized(60))
        engine = await started(served("a", 60), small_at_first)
        await ask(engine, "growing")
        assert engine.model("growing").memory_bytes == 60
        await ask(engine, "a")
        assert engine.model("growing").state is ModelState.UNLOADED
        await engine.close()

    run(scenario())


def test_a_model_that_outgrew_the_budget_alone_is_loaded_again_and_makes_all_others_leave(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async def open_lanes(report: ReportProgress) -> OpenedModel:
            return OpenedModel([ScriptedLane(say_words("well"))], memory_bytes=lambda: ROOM_BYTES + 4)

        grown = ModelSpec("grown", open_lanes, on_demand=True, estimate_bytes=sized(90))
        engine = await started(grown, served("small", 5), served("other", 60))
        for _ in range(2):
            await ask(engine, "grown")
            await ask(engine, "other")
            assert engine.model("grown").state is ModelState.UNLOADED
            await ask(engine, "small")
        await ask(engine, "grown")
        assert [engine.model(name).state for name in ("small", "other")] == [ModelState.UNLOADED] * 2
        assert engine.model("grown").openings_total == 3
        assert engine.model("grown").memory_bytes == ROOM_BYTES + 4, "what it takes is told as it is"
        await settle()
        assert engine.model("grown").state is ModelState.READY, "it is not put out for its own size"
        await engine.close()

    run(scenario())
    assert [message for message in caplog.messages if message.startswith("model grown took 1 MiB, and 1 MiB")]


def test_a_new_configuration_ends_the_rest_of_a_model_that_was_refused() -> None:
    async def scenario() -> None:
        specs = [served("a", 60), served("large", ROOM_BYTES + 1)]
        engine = await started(*specs)
        for _ in range(2):
            with pytest.raises(ModelUnavailableError, match="does not fit"):
                await ask(engine, "large")
        again = [(change.name, change.what) for change in engine.reconfigure(specs, SETTINGS)]
        assert again == [("large", "tried again when it is asked for, since it is unavailable")]
        with pytest.raises(ModelUnavailableError, match="does not fit"):
            await ask(engine, "large")
        engine.reconfigure(specs, replace(SETTINGS, model_memory_bytes=ROOM_BYTES + 1))
        await ask(engine, "large")
        await engine.close()

    run(scenario())


def test_a_new_configuration_ends_the_rest_of_a_model_that_did_not_load() -> None:
    async def scenario() -> None:
        tries = 0

        async def open_lanes(report: ReportProgress) -> OpenedModel:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise CheckpointError("damaged")
            return OpenedModel([ScriptedLane(say_words("well"))])

        specs = [ModelSpec("late", open_lanes, on_demand=True, estimate_bytes=sized(10))]
        engine = await started(*specs)
        with pytest.raises(ModelUnavailableError):
            await ask(engine, "late")
        engine.reconfigure(specs, SETTINGS)
        await ask(engine, "late")
        await engine.close()

    run(scenario())


def test_what_was_measured_counts_where_it_was_more_than_estimated() -> None:
    async def scenario() -> None:
        async def open_lanes(report: ReportProgress) -> OpenedModel:
            return OpenedModel([ScriptedLane(say_words("well"))], memory_bytes=lambda: 70)

        larger = ModelSpec("larger", open_lanes, on_demand=True, estimate_bytes=sized(30))
        engine = await started(served("a", 60), larger)
        await ask(engine, "larger")
        assert engine.model("larger").memory_bytes == 70
        await ask(engine, "a")
        await ask(engine, "larger")  # estimated anew, and what was measured still holds
        assert engine.model("larger").memory_bytes == 70
        assert engine.model("a").state is ModelState.UNLOADED
        await engine.close()

    run(scenario())
