"""EngineClient: a request from arrival to the last lease, whoever leaves in between."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.serving.engine_scenario import everything, idle, job, outcomes, run, serving
from tests.unit.serving.scripted_lane import PROMPT_TOKENS, ScriptedLane, say_words, settle, spec_of, until

from edgellm.errors import (
    ConfigError,
    ContextLengthError,
    DuplicateRequestIdError,
    InvalidSchemaError,
    ModelNotFoundError,
    RequestCancelledError,
    RequestTimeoutError,
    ServerBusyError,
    WorkerFailedError,
)
from edgellm.runtime.outputs import StreamDelta
from edgellm.serving.engine_client import EngineClient
from edgellm.serving.generation import CancelCause


def test_a_request_gets_its_text_and_its_slot_comes_back() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("a", "b"))
        async with serving(lane) as engine:
            assert await everything(await engine.generate(job())) == {0: "ab"}
            assert idle(engine)
            assert outcomes(engine) == {"success": 1}
            assert lane.generations[0].request.prompt_token_ids == list(range(PROMPT_TOKENS))

    run(scenario())


def test_a_prompt_is_encoded_once_however_many_choices_are_asked() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("a"))
        async with serving(lane) as engine:
            before = len(lane.encoded)
            assert await everything(await engine.generate(job(choices=5, seed=7))) == dict.fromkeys(range(5), "a")
            assert len(lane.encoded) == before + 1
            assert [g.request.params.seed for g in lane.generations] == [7, 8, 9, 10, 11]
            assert lane.most_occupied <= 2

    run(scenario())


def test_the_slot_is_free_only_once_the_lane_let_go() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("a"), max_batch_size=1)
        async with serving(lane) as engine:
            lane.holds_slots = True
            first = await engine.generate(job("one"))
            second = asyncio.create_task(engine.generate(job("two")))
            await settle()
            assert (engine.model("tiny").admission.running, len(lane.generations)) == (1, 1)
            lane.generations[0].let_go()
            await everything(first)
            await second
            assert len(lane.generations) == 2

    run(scenario())


def test_a_queued_request_whose_client_left_never_starts() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(max_batch_size=1)
        async with serving(lane) as engine:
            running = await engine.generate(job("one"))
            queued = asyncio.create_task(engine.generate(job("two")))
            await settle()
            queued.cancel()
            await settle()
            lane.generations[0].finish()
            await everything(running)
            assert len(lane.generations) == 1
            assert idle(engine)
            assert outcomes(engine) == {"success": 1, "disconnected": 1}

    run(scenario())


def test_a_client_that_leaves_while_the_lane_accepts_is_cancelled_there() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        accepting = asyncio.Event()
        async with serving(lane) as engine:
            lane.before_accepting = accepting.wait  # type: ignore[assignment]
            asked = asyncio.create_task(engine.generate(job()))
            await settle()
            asked.cancel()
            await settle()
            assert not idle(engine)
            accepting.set()
            await until(lambda: idle(engine))
            assert lane.generations[0].cancelled

    run(scenario())


def test_cancelling_keeps_the_lease_until_the_lane_has_let_go() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with serving(lane) as engine:
            lane.holds_slots = True
            generation = await engine.generate(job())
            generation.cancel(CancelCause.CLIENT_LEFT)
            await settle()
            assert lane.generations[0].cancelled
            assert engine.model("tiny").admission.running == 1
            lane.generations[0].let_go()
            await generation.ended()
            assert idle(engine)
            assert outcomes(engine) == {"disconnected": 1}

    run(scenario())


def test_cancelling_stops_choices_that_have_not_started() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(max_batch_size=1)
        async with serving(lane) as engine:
            generation = await engine.generate(job(choices=3))
            generation.cancel(CancelCause.CLIENT_LEFT)
            await generation.ended()
            assert len(lane.generations) == 1

    run(scenario())


def test_what_the_lane_refuses_is_raised_and_leaves_nothing() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with serving(lane) as engine:
            lane.refusal = InvalidSchemaError("bad schema", param="guided_decoding")
            with pytest.raises(InvalidSchemaError):
                await engine.generate(job(choices=2))
            assert idle(engine)
            assert outcomes(engine) == {"refused": 1}

    run(scenario())


def test_a_prompt_without_room_takes_no_place() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with serving(lane) as engine:
            with pytest.raises(ContextLengthError):
                await engine.generate(job(text="too long"))
            assert not lane.generations
            assert idle(engine)

    run(scenario())


def test_a_failing_lane_ends_the_request_after_the_text_that_came() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with serving(lane) as engine:
            generation = await engine.generate(job())
            lane.generations[0].say("half")
            lane.generations[0].fail(WorkerFailedError("the worker is gone"))
            [item] = await generation.next_deltas()
            assert item.delta.text == "half"
            with pytest.raises(WorkerFailedError):
                await generation.next_deltas()
            await generation.ended()
            assert idle(engine)
            assert outcomes(engine) == {"error": 1}

    run(scenario())


def test_an_unforeseen_error_of_a_lane_costs_one_request_and_logs_no_text(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with serving(lane) as engine:

            async def explode() -> None:
                raise ValueError("canary prompt text")

            lane.before_accepting = explode
            with pytest.raises(WorkerFailedError):
                await engine.generate(job())
            lane.before_accepting = None
            lane.script = say_words("fine")
            assert await everything(await engine.generate(job())) == {0: "fine"}

    run(scenario())
    assert "ValueError" in caplog.text
    assert "canary" not in caplog.text


def test_a_result_that_never_came_is_no_success() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with serving(lane) as engine:
            generation = await engine.generate(job())
            lane.generations[0].give(StreamDelta(text="x", finished=True, finish_reason="cancelled"))
            with pytest.raises(WorkerFailedError):
                await everything(generation)

    run(scenario())


def test_a_request_over_its_time_is_cancelled() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with serving(lane, request_timeout_seconds=0.01) as engine:
            generation = await engine.generate(job())
            with pytest.raises(RequestTimeoutError):
                await generation.next_deltas()
            await generation.ended()
            assert lane.generations[0].cancelled
            assert outcomes(engine) == {"timed_out": 1}

    run(scenario())


def test_the_same_id_twice_at_a_time_is_refused_for_one_client_only() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with serving(lane) as engine:
            first = await engine.generate(job("same", client="a"))
            with pytest.raises(DuplicateRequestIdError):
                await engine.generate(job("same", client="a"))
            await engine.generate(job("same", client="b"))
            lane.generations[0].finish()
            await everything(first)
            await engine.generate(job("same", client="a"))

    run(scenario())


def test_saturation_is_refused_and_counted() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(max_batch_size=1)
        async with serving(lane, max_queued_requests=0) as engine:
            await engine.generate(job("one"))
            with pytest.raises(ServerBusyError):
                await engine.generate(job("two"))
            assert outcomes(engine) == {"saturated": 1}

    run(scenario())


def test_replicas_share_the_load() -> None:
    async def scenario() -> None:
        lanes = ScriptedLane(max_batch_size=1), ScriptedLane(max_batch_size=1)
        async with serving(*lanes) as engine:
            await engine.generate(job("one"))
            await engine.generate(job("two"))
            assert [len(lane.generations) for lane in lanes] == [1, 1]

    run(scenario())


def test_unknown_models_and_equal_names_are_refused() -> None:
    engine = EngineClient([spec_of(ScriptedLane())])
    with pytest.raises(ModelNotFoundError):
        engine.model("other")
    with pytest.raises(ConfigError):
        EngineClient([spec_of(ScriptedLane()), spec_of(ScriptedLane())])


def test_a_slow_reader_gets_what_it_missed_in_one_piece() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with serving(lane) as engine:
            generation = await engine.generate(job())
            for word in ("one ", "two ", "three"):
                lane.generations[0].say(word)
            await settle()
            [item] = await generation.next_deltas()
            assert (item.delta.text, len(item.delta.token_ids)) == ("one two three", 3)

    run(scenario())


def test_tokens_and_times_are_counted() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with serving(lane) as engine:
            generation = await engine.generate(job())
            for word in "abc":
                lane.generations[0].say(word)
            lane.generations[0].finish(cached_tokens=4)
            await everything(generation)
            value = engine.counters.registry.get_sample_value
            label = {"model": "tiny"}
            assert value("edgellm_prompt_tokens_total", label) == PROMPT_TOKENS
            assert value("edgellm_cached_prompt_tokens_total", label) == 4
            assert value("edgellm_generated_tokens_total", label) == 3
            assert value("edgellm_time_to_first_token_seconds_count", label) == 1
            assert value("edgellm_inter_token_seconds_count", label) == 2
            assert value("edgellm_request_seconds_count", label) == 1
            assert value("edgellm_model_state", {"model": "tiny", "state": "ready"}) == 1
            assert value("edgellm_model_executor", {"model": "tiny", "executor": "scripted", "device": "paper"}) == 1
            assert value("edgellm_slots", label) == 2
            assert value("edgellm_lane_scheduling", {"model": "tiny", "lane": "0", "counter": "completed"}) == 3

    run(scenario())


@pytest.mark.parametrize("spoken", [False, True])
def test_the_prompt_of_a_request_that_was_cut_short_counts_once_its_computing_began(spoken: bool) -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with serving(lane) as engine:
            generation = await engine.generate(job())
            if spoken:
                lane.generations[0].say("a")
            generation.cancel(CancelCause.CLIENT_LEFT)
            await generation.ended()
            assert generation.report.prompt_tokens == PROMPT_TOKENS

    run(scenario())


def test_the_prompt_of_a_choice_that_never_started_does_not_count() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(max_batch_size=1)
        async with serving(lane) as engine:
            generation = await engine.generate(job(choices=3))
            generation.cancel(CancelCause.TIMED_OUT)
            await generation.ended()
            assert generation.report.prompt_tokens == PROMPT_TOKENS

    run(scenario())


@pytest.mark.parametrize("times_lost", [1, 2])
def test_the_prompt_of_a_request_that_ran_again_counts_once(times_lost: int) -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with serving(lane) as engine:
            generation = await engine.generate(job())
            for number in range(times_lost):
                await until(lambda number=number: len(lane.generations) == number + 1)
                lane.generations[number].fail(WorkerFailedError("gone"))
            if times_lost == 1:
                await until(lambda: len(lane.generations) == 2)
                lane.generations[1].finish()
            await generation.ended()
            assert generation.report.prompt_tokens == PROMPT_TOKENS

    run(scenario())


def test_the_time_to_retry_goes_by_what_the_running_requests_may_still_say() -> None:
    async def scenario() -> None:
        lane = ScriptedLane(max_batch_size=1)
        async with serving(lane, max_queued_requests=0) as engine:
            await engine.generate(job("long"))
            lane.generations[-1].say("a")
            await asyncio.sleep(0.5)
            lane.generations[-1].say("b", tokens=9)
            with pytest.raises(ServerBusyError) as refused:
                await engine.generate(job("late"))
            tokens_left = lane.generations[-1].request.params.max_tokens - 10
            assert refused.value.retry_after_seconds is not None
            assert refused.value.retry_after_seconds >= tokens_left * 0.5 / 9 > 5  # no faster than it was
            lane.generations[-1].finish()

    run(scenario())


def test_a_reader_that_was_cancelled_hears_so() -> None:
    async def scenario() -> None:
        lane = ScriptedLane()
        async with serving(lane) as engine:
            generation = await engine.generate(job())
            generation.cancel(CancelCause.CLIENT_LEFT)
            generation.cancel(CancelCause.TIMED_OUT)
            with pytest.raises(RequestCancelledError):
                await generation.next_deltas()

    run(scenario())


def test_every_gap_between_tokens_is_counted() -> None:
    def gaps(engine: EngineClient) -> float:
        samples = [s for family in engine.counters.registry.collect() for s in family.samples]
        return next(s.value for s in samples if s.name == "edgellm_inter_token_seconds_count")

    async def scenario() -> None:
        lane = ScriptedLane()
        async with serving(lane) as engine:
            generation = await engine.generate(job())
            for tokens in (1, 3, *[1] * 200):
                lane.generations[0].say("a", tokens=tokens)
            assert gaps(engine) >= 100  # also while it runs
            lane.generations[0].finish()
            await everything(generation)
            await generation.ended()
            assert gaps(engine) == 201

    run(scenario())
