"""InProcessLane over the scripted runtime: acceptance, deltas, cancellation, release and close on both paths."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.runtime.scripted_model import VOCAB_SIZE, WordCodec, scripted_llm
from tests.unit.runtime.scripted_runtime import DEADLINE_SECONDS, FinishReason, Script, ScriptedModule, SubmitError

from edgellm.errors import (
    ContextLengthError,
    GenerationError,
    RequestCancelledError,
    RequestError,
    ServerBusyError,
    WorkerFailedError,
)
from edgellm.runtime.generation import ChatPrompt, GenerationRequest, TextPrompt
from edgellm.runtime.llm_options import ContextCacheConfig
from edgellm.runtime.outputs import StreamDelta
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving import in_process_lane
from edgellm.serving.in_process_lane import InProcessGeneration, InProcessLane

PATHS = pytest.mark.parametrize("in_flight", [True, False], ids=["in flight", "blocking"])
HI = GenerationRequest(TextPrompt("one two"), SamplingParams())


def lane_of(module: ScriptedModule, in_flight: bool = True, **options: Any) -> InProcessLane:
    options.setdefault("context_cache", ContextCacheConfig(False))
    return InProcessLane(scripted_llm(module, enable_in_flight_batching=in_flight, **options))


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await scenario()

    asyncio.run(bounded())


class Collector:
    """Keeps what came before an error."""

    def __init__(self, generation: InProcessGeneration) -> None:
        self._generation = generation
        self.seen: list[StreamDelta] = []

    async def read(self) -> list[StreamDelta]:
        async for delta in self._generation.deltas():
            self.seen.append(delta)  # a comprehension would lose them
        return self.seen


async def collect(generation: InProcessGeneration) -> list[StreamDelta]:
    return await Collector(generation).read()


async def until(holds: Callable[[], Any]) -> None:
    while not holds():  # noqa: ASYNC110  # the runtime's threads set no asyncio.Event
        await asyncio.sleep(0.001)


@PATHS
def test_deltas_come_up_to_the_finished_one_and_then_the_place_is_free(in_flight: bool) -> None:
    async def scenario() -> None:
        lane = lane_of(ScriptedModule(), in_flight)
        generation = await lane.submit(await lane.encode(HI))
        deltas = await collect(generation)
        assert "".join(delta.text for delta in deltas) == "one two three"
        assert [token_id for delta in deltas for token_id in delta.token_ids] == [0, 1, 2]
        assert (deltas[-1].finished, deltas[-1].finish_reason, deltas[-1].prompt_tokens) == (True, "stop", 7)
        await generation.released()
        await lane.close()

    run(scenario)


@PATHS
def test_what_a_slow_reader_left_is_merged(in_flight: bool) -> None:
    async def scenario() -> None:
        lane = lane_of(ScriptedModule(), in_flight)
        generation = await lane.submit(HI)
        await generation.released()
        (delta,) = await collect(generation)
        assert (delta.text, delta.token_ids, delta.finished) == ("one two three", [0, 1, 2], True)
        await lane.close()

    run(scenario)


@PATHS
def test_encoding_takes_no_place_and_says_what_is_wrong(in_flight: bool) -> None:
    async def scenario() -> None:
        module = ScriptedModule()
        lane = lane_of(module, in_flight, max_input_len=10)
        encoded = await lane.encode(HI)
        assert encoded.prompt_token_ids == [3, 3]
        assert await lane.encode(encoded) == encoded
        with pytest.raises(ContextLengthError):
            await lane.encode(GenerationRequest(TextPrompt("w " * 11), SamplingParams()))
        with pytest.raises(RequestError) as refusal:
            await lane.encode(GenerationRequest(ChatPrompt([{"role": "nobody"}]), SamplingParams()))
        assert refusal.value.param == "messages[0].role"
        with pytest.raises(RequestError):
            await lane.encode(GenerationRequest(TextPrompt("x"), SamplingParams(logit_bias={VOCAB_SIZE: 1})))
        assert module.requests == []
        await lane.close()

    run(scenario)


def test_long_prompts_are_tokenised_off_the_event_loop() -> None:
    threads: list[str] = []

    class NotingCodec(WordCodec):
        def encode_text(self, text: str, **options: Any) -> list[int]:
            threads.append(threading.current_thread().name)
            return super().encode_text(text, **options)

    async def scenario() -> None:
        lane = lane_of(ScriptedModule(), codec=NotingCodec())
        await lane.encode(HI)
        long = "word " * in_process_lane.INLINE_PROMPT_BYTES
        await lane.encode(GenerationRequest(TextPrompt(long), SamplingParams()))
        assert threads[0] == threading.current_thread().name
        assert threads[1] != threads[0]
        await lane.close()

    run(scenario)


@PATHS
def test_a_request_that_was_not_encoded_is_encoded_by_submit(in_flight: bool) -> None:
    async def scenario() -> None:
        module = ScriptedModule()
        lane = lane_of(module, in_flight)
        generation = await lane.submit(HI)
        await generation.released()
        assert module.requests[0].requests[0].extensions.token_ids == [3, 3]
        await lane.close()

    run(scenario)


@PATHS
def test_cancel_stops_it_and_the_place_is_free_only_when_the_runtime_let_go(in_flight: bool) -> None:
    async def scenario() -> None:
        module = ScriptedModule()
        module.script = lambda _: Script(gate=threading.Event())
        lane = lane_of(module, in_flight)
        generation = await lane.submit(HI)
        stream = generation.deltas()
        await anext(stream)
        generation.cancel()
        generation.cancel()
        with pytest.raises(RequestCancelledError):
            await anext(stream)
        await generation.released()
        (channel,) = module.requests[0].stream_channels
        assert channel.is_cancelled()
        if in_flight:
            assert module.engines[0].handles[0].ready()
        await lane.close()

    run(scenario)


@PATHS
def test_the_finished_delta_does_not_wait_for_the_runtime_but_the_place_does(in_flight: bool) -> None:
    async def scenario() -> None:
        module = ScriptedModule()
        ends = threading.Event()
        module.script = lambda _: Script(end_gate=ends)
        lane = lane_of(module, in_flight)
        generation = await lane.submit(HI)
        async for delta in generation.deltas():
            if delta.finished:
                break
        releasing = asyncio.create_task(generation.released())
        await asyncio.sleep(0)
        assert not releasing.done()
        ends.set()
        await releasing
        await lane.close()

    run(scenario)


@PATHS
@pytest.mark.parametrize(
    ("script", "error"),
    [
        (Script(error=RuntimeError("coordinator has a failed worker"), terminal=False), WorkerFailedError),
        (Script(error=RuntimeError("boom"), reason=FinishReason.ERROR), GenerationError),
        (Script(reason=FinishReason.ERROR), GenerationError),
        (Script(terminal=False), GenerationError),
    ],
)
def test_what_did_not_end_well_raises_and_never_finishes(
    in_flight: bool, script: Script, error: type[Exception]
) -> None:
    async def scenario() -> None:
        module = ScriptedModule()
        module.script = lambda _: script
        lane = lane_of(module, in_flight)
        generation = await lane.submit(HI)
        stream = Collector(generation)
        with pytest.raises(error):
            await stream.read()
        assert not any(delta.finished for delta in stream.seen)
        await generation.released()
        await lane.close()

    run(scenario)


def test_a_late_error_comes_after_the_finished_delta() -> None:
    async def scenario() -> None:
        module = ScriptedModule()
        module.script = lambda _: Script(error=RuntimeError("late"))
        lane = lane_of(module)
        generation = await lane.submit(HI)
        stream = Collector(generation)
        with pytest.raises(GenerationError):
            await stream.read()
        assert stream.seen[-1].finished
        await lane.close()

    run(scenario)


@PATHS
@pytest.mark.parametrize("guided", [True, False])
def test_what_the_runtime_refuses_is_raised_by_submit(in_flight: bool, guided: bool) -> None:
    """On the blocking path the call itself refuses: submit waits where the front end cannot have checked."""

    async def scenario() -> None:
        module = ScriptedModule(extensions=guided)
        module.script = lambda _: Script(submit_error=RuntimeError("EDGELLM_INPUT_TOO_LONG"))
        lane = lane_of(module, in_flight)
        params = SamplingParams(guided_decoding={"regex": "a"} if guided else None)
        with pytest.raises(ContextLengthError):
            await lane.submit(GenerationRequest(TextPrompt("one"), params))
        await lane.close()

    run(scenario)


def test_a_full_engine_is_busy() -> None:
    async def scenario() -> None:
        module = ScriptedModule()
        module.script = lambda _: Script(submit_error=SubmitError("command queue is full; retry later"))
        lane = lane_of(module)
        with pytest.raises(ServerBusyError):
            await lane.submit(HI)
        await lane.close()

    run(scenario)


def test_requests_run_together_each_with_its_own_deltas() -> None:
    async def scenario() -> None:
        module = ScriptedModule()
        module.script = lambda request: Script(texts=[f"{len(request.requests[0].extensions.token_ids)}"])
        lane = lane_of(module)
        requests = [GenerationRequest(TextPrompt("w " * count), SamplingParams()) for count in range(1, 41)]
        generations = [await lane.submit(request) for request in requests]
        for count, generation in enumerate(generations, start=1):
            assert "".join(delta.text for delta in await collect(generation)) == str(count)
        await lane.close()

    run(scenario)


@pytest.mark.parametrize("guided", [True, False])
def test_a_caller_that_is_cancelled_inside_submit_leaves_nothing_running(guided: bool) -> None:
    async def scenario() -> None:
        module = ScriptedModule(extensions=guided)
        module.script = lambda _: Script(texts=["only"], gate=threading.Event())
        lane = lane_of(module, in_flight=guided)
        params = SamplingParams(guided_decoding={"regex": "a"} if guided else None)
        submitting = asyncio.create_task(lane.submit(GenerationRequest(TextPrompt("one"), params)))
        await asyncio.sleep(0)
        if not guided:
            await until(lambda: module.requests)
        submitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await submitting
        await until(lambda: module.requests and module.requests[0].stream_channels[0].is_cancelled())
        await lane.close()

    run(scenario)


def test_counters_are_those_of_the_contract() -> None:
    async def scenario() -> None:
        module = ScriptedModule()
        lane = lane_of(module)
        counters = lane.counters()
        assert counters.scheduling is not None
        assert (counters.scheduling["queued"], counters.scheduling["resident"]) == (2, 1)
        assert (counters.context_cache, counters.steps_completed) == (None, 5)
        await lane.close()
        blocking = lane_of(ScriptedModule(), in_flight=False)
        assert blocking.counters().scheduling is None
        generation = await blocking.submit(HI)
        await generation.released()
        assert blocking.counters().steps_completed == 1
        await blocking.close()

    run(scenario)


@PATHS
def test_close_drains_and_may_be_called_twice(in_flight: bool) -> None:
    async def scenario() -> None:
        module = ScriptedModule()
        gate = threading.Event()
        module.script = lambda _: Script(gate=gate)
        lane = lane_of(module, in_flight)
        generation = await lane.submit(HI)
        await until(lambda: module.requests)
        closings = [asyncio.create_task(lane.close()) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(closing.done() for closing in closings)
        gate.set()
        await asyncio.gather(*closings)
        assert (await collect(generation))[-1].finish_reason == "stop"
        await lane.close()

    run(scenario)


def test_a_loop_that_is_gone_ends_its_generations() -> None:
    module = ScriptedModule()
    module.script = lambda _: Script(gate=threading.Event())
    lane = lane_of(module)

    async def leave() -> None:
        await lane.submit(HI)

    asyncio.run(leave())
    channel = module.requests[0].stream_channels[0]
    channel.push(module.script(None).chunks()[0])
    module.engines[0].handles[0].get_calls = 0
    assert module.engines[0].handles[0]._done.wait(DEADLINE_SECONDS)
    assert channel.is_cancelled()
    asyncio.run(lane.close())
