"""InProcessLane over the scripted runtime: acceptance, deltas, cancellation, release and close on both paths."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.runtime.scripted_model import VOCAB_SIZE, WordCodec, scripted_llm
from tests.unit.runtime.scripted_runtime import DEADLINE_SECONDS, FinishReason, Script, ScriptedModule, SubmitError
from tests.unit.runtime.waiting import wait_until
from tests.unit.serving.lane_reader import LaneReader
from tests.unit.serving.scripted_lane import settle

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
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving import in_process_lane
from edgellm.serving.in_process_generation import PumpedGeneration
from edgellm.serving.in_process_lane import InProcessLane

HI = GenerationRequest(TextPrompt("one two"), SamplingParams())


@dataclass(frozen=True)
class Path:
    """A way that chunks take: read on the loop, by a thread from the engine, or by a thread from a call."""

    in_flight: bool = True
    signals: bool = True

    def module(self, **options: Any) -> ScriptedModule:
        return ScriptedModule(signals=self.signals, **options)

    def lane_of(self, module: ScriptedModule, **options: Any) -> InProcessLane:
        options.setdefault("context_cache", ContextCacheConfig(False))
        return InProcessLane(scripted_llm(module, enable_in_flight_batching=self.in_flight, **options))


SIGNALLED = Path()
PUMPED = Path(signals=False)
BLOCKING = Path(in_flight=False)
PATHS = pytest.mark.parametrize("path", [SIGNALLED, PUMPED, BLOCKING], ids=["signalled", "pumped", "blocking"])
IN_FLIGHT_PATHS = pytest.mark.parametrize("path", [SIGNALLED, PUMPED], ids=["signalled", "pumped"])


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await scenario()

    asyncio.run(bounded())


async def until(holds: Callable[[], Any]) -> None:
    while not holds():  # noqa: ASYNC110  # the runtime's threads set no asyncio.Event
        await asyncio.sleep(0.001)


@PATHS
def test_deltas_come_up_to_the_finished_one_and_then_the_place_is_free(path: Path) -> None:
    async def scenario() -> None:
        lane = path.lane_of(path.module())
        reader = await LaneReader.submit(lane, await lane.encode(HI))
        deltas = await reader.end()
        assert reader.text == "one two three"
        assert [token_id for delta in deltas for token_id in delta.token_ids] == [0, 1, 2]
        assert (deltas[-1].finished, deltas[-1].finish_reason, deltas[-1].prompt_tokens) == (True, "stop", 7)
        await lane.close()

    run(scenario)


@PATHS
def test_what_came_while_the_loop_was_busy_is_merged(path: Path) -> None:
    async def scenario() -> None:
        module = path.module()
        lane = path.lane_of(module)
        reader = await LaneReader.submit(lane, HI)
        wait_until(lambda: module.requests)
        channel = module.requests[0].stream_channels[0]
        if isinstance(reader.generation, PumpedGeneration):
            waiting = reader.generation
            wait_until(lambda: waiting._waiting and waiting._waiting[-1].finished)
        wait_until(channel.is_finished)
        (delta,) = await reader.end()
        assert (delta.text, delta.token_ids, delta.finished) == ("one two three", [0, 1, 2], True)
        await lane.close()

    run(scenario)


@PATHS
def test_encoding_takes_no_place_and_says_what_is_wrong(path: Path) -> None:
    async def scenario() -> None:
        module = path.module()
        lane = path.lane_of(module, max_input_len=10)
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
        lane = SIGNALLED.lane_of(ScriptedModule(), codec=NotingCodec())
        await lane.encode(HI)
        long = "word " * in_process_lane.INLINE_PROMPT_BYTES
        await lane.encode(GenerationRequest(TextPrompt(long), SamplingParams()))
        assert threads[0] == threading.current_thread().name
        assert threads[1] != threads[0]
        await lane.close()

    run(scenario)


@PATHS
def test_a_request_that_was_not_encoded_is_encoded_by_submit(path: Path) -> None:
    async def scenario() -> None:
        module = path.module()
        lane = path.lane_of(module)
        await (await LaneReader.submit(lane, HI)).end()
        assert module.requests[0].requests[0].extensions.token_ids == [3, 3]
        await lane.close()

    run(scenario)


@PATHS
def test_cancel_stops_it_and_the_place_is_free_only_when_the_runtime_let_go(path: Path) -> None:
    async def scenario() -> None:
        module = path.module()
        module.script = lambda _: Script(gate=threading.Event())
        lane = path.lane_of(module)
        reader = await LaneReader.submit(lane, HI)
        await reader.first()
        reader.cancel()
        reader.cancel()
        with pytest.raises(RequestCancelledError):
            await reader.end()
        (channel,) = module.requests[0].stream_channels
        assert channel.is_cancelled()
        if path.in_flight:
            assert module.engines[0].handles[0].ready()
        await lane.close()

    run(scenario)


@PATHS
def test_the_finished_delta_does_not_wait_for_the_runtime_but_the_place_does(path: Path) -> None:
    async def scenario() -> None:
        module = path.module()
        ends = threading.Event()
        module.script = lambda _: Script(end_gate=ends)
        lane = path.lane_of(module)
        reader = await LaneReader.submit(lane, HI)
        await reader.finish()
        await settle()
        assert reader.ends == 0
        ends.set()
        await reader.end()
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
def test_what_did_not_end_well_raises_and_never_finishes(path: Path, script: Script, error: type[Exception]) -> None:
    async def scenario() -> None:
        module = path.module()
        module.script = lambda _: script
        lane = path.lane_of(module)
        reader = await LaneReader.submit(lane, HI)
        with pytest.raises(error):
            await reader.end()
        assert not reader.finished
        await lane.close()

    run(scenario)


@IN_FLIGHT_PATHS
def test_a_late_error_comes_after_the_finished_delta(path: Path) -> None:
    async def scenario() -> None:
        module = path.module()
        module.script = lambda _: Script(error=RuntimeError("late"))
        lane = path.lane_of(module)
        reader = await LaneReader.submit(lane, HI)
        with pytest.raises(GenerationError):
            await reader.end()
        assert reader.finished
        await lane.close()

    run(scenario)


@PATHS
@pytest.mark.parametrize("guided", [True, False])
def test_what_the_runtime_refuses_is_raised_by_submit(path: Path, guided: bool) -> None:
    """On the blocking path the call itself refuses: submit waits where the front end cannot have checked."""

    async def scenario() -> None:
        module = path.module(extensions=guided)
        module.script = lambda _: Script(submit_error=RuntimeError("EDGELLM_INPUT_TOO_LONG"))
        lane = path.lane_of(module)
        params = SamplingParams(guided_decoding={"regex": "a"} if guided else None)
        reader = LaneReader()
        with pytest.raises(ContextLengthError):
            await lane.submit(GenerationRequest(TextPrompt("one"), params), reader)
        await settle()
        assert reader.ends == 0
        await lane.close()

    run(scenario)


def test_a_full_engine_is_busy() -> None:
    async def scenario() -> None:
        module = ScriptedModule()
        module.script = lambda _: Script(submit_error=SubmitError("command queue is full; retry later"))
        lane = SIGNALLED.lane_of(module)
        with pytest.raises(ServerBusyError):
            await lane.submit(HI, LaneReader())
        await lane.close()

    run(scenario)


@IN_FLIGHT_PATHS
def test_requests_run_together_each_with_its_own_deltas(path: Path) -> None:
    async def scenario() -> None:
        module = path.module()
        module.script = lambda request: Script(texts=[f"{len(request.requests[0].extensions.token_ids)}"])
        lane = path.lane_of(module)
        requests = [GenerationRequest(TextPrompt("w " * count), SamplingParams()) for count in range(1, 41)]
        readers = [await LaneReader.submit(lane, request) for request in requests]
        for count, reader in enumerate(readers, start=1):
            await reader.end()
            assert reader.text == str(count)
        await lane.close()

    run(scenario)


@pytest.mark.parametrize("guided", [True, False])
def test_a_caller_that_is_cancelled_inside_submit_leaves_nothing_running(guided: bool) -> None:
    async def scenario() -> None:
        module = ScriptedModule(extensions=guided)
        module.script = lambda _: Script(texts=["only"], gate=threading.Event())
        lane = Path(in_flight=guided).lane_of(module)
        params = SamplingParams(guided_decoding={"regex": "a"} if guided else None)
        reader = LaneReader()
        submitting = asyncio.create_task(lane.submit(GenerationRequest(TextPrompt("one"), params), reader))
        await asyncio.sleep(0)
        if not guided:
            await until(lambda: module.requests)
        submitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await submitting
        await until(lambda: module.requests and module.requests[0].stream_channels[0].is_cancelled())
        await lane.close()
        assert (reader.seen, reader.ends) == ([], 0)

    run(scenario)


def test_counters_are_those_of_the_contract() -> None:
    async def scenario() -> None:
        lane = SIGNALLED.lane_of(ScriptedModule())
        counters = lane.counters()
        assert counters.scheduling is not None
        assert (counters.scheduling["queued"], counters.scheduling["resident"]) == (2, 1)
        assert (counters.context_cache, counters.steps_completed) == (None, 5)
        await lane.close()
        blocking = BLOCKING.lane_of(ScriptedModule())
        assert blocking.counters().scheduling is None
        await (await LaneReader.submit(blocking, HI)).end()
        assert blocking.counters().steps_completed == 1
        await blocking.close()

    run(scenario)


@PATHS
def test_close_drains_and_may_be_called_twice(path: Path) -> None:
    async def scenario() -> None:
        module = path.module()
        gate = threading.Event()
        module.script = lambda _: Script(gate=gate)
        lane = path.lane_of(module)
        reader = await LaneReader.submit(lane, HI)
        await until(lambda: module.requests)
        closings = [asyncio.create_task(lane.close()) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(closing.done() for closing in closings)
        gate.set()
        await asyncio.gather(*closings)
        assert (await reader.end())[-1].finish_reason == "stop"
        await lane.close()

    run(scenario)


def test_a_loop_that_is_gone_ends_its_generations_at_their_next_chunk() -> None:
    module = PUMPED.module()
    module.script = lambda _: Script(gate=threading.Event())
    lane = PUMPED.lane_of(module)

    async def leave() -> None:
        await LaneReader.submit(lane, HI)

    asyncio.run(leave())
    channel = module.requests[0].stream_channels[0]
    channel.push(module.script(None).chunks()[0])
    assert module.engines[0].handles[0]._done.wait(DEADLINE_SECONDS)
    assert channel.is_cancelled()
    asyncio.run(lane.close())


def test_a_lane_of_a_loop_that_is_gone_can_be_used_by_another() -> None:
    module = SIGNALLED.module()
    gates = [threading.Event(), None]
    module.script = lambda _: Script(gate=gates[len(module.requests)])
    lane = SIGNALLED.lane_of(module)

    async def leave() -> None:
        await LaneReader.submit(lane, HI)

    async def come() -> None:
        assert (await (await LaneReader.submit(lane, HI)).end())[-1].finished
        await lane.close()

    asyncio.run(leave())
    run(come)
    assert module.requests[0].stream_channels[0].is_cancelled()


def test_a_generation_that_cannot_be_read_ends_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        module = ScriptedModule()
        gate = threading.Event()
        module.script = lambda _: Script(gate=gate)
        lane = SIGNALLED.lane_of(module)
        broken, sound = [await LaneReader.submit(lane, HI) for _ in range(2)]
        await broken.first()
        broken.take = None  # type: ignore[assignment,method-assign]
        gate.set()
        with pytest.raises(GenerationError):
            await broken.end()
        assert (await sound.end())[-1].finished
        assert module.requests[0].stream_channels[0].is_cancelled()
        await lane.close()

    run(scenario)
    assert "could not be read" in caplog.text
