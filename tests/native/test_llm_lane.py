"""InProcessLane over the real native runtime: what serving relies on."""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.unit.serving.lane_reader import LaneReader

from edgellm import LLM, SamplingParams, StreamDelta
from edgellm.errors import ContextLengthError, InvalidSchemaError, RequestCancelledError
from edgellm.runtime.generation import ChatPrompt, GenerationRequest, TextPrompt
from edgellm.serving.in_process_lane import InProcessLane

DEADLINE_SECONDS = 60.0
LONG = SamplingParams(temperature=0, max_tokens=900, ignore_eos=True)
PATHS = pytest.mark.parametrize("in_flight", [True, False], ids=["in flight", "blocking"])

MakeLane = Callable[[bool], InProcessLane]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("lane") / "llama", VARIANTS["llama"])


@pytest.fixture
def make_lane(checkpoint: Path) -> Iterator[MakeLane]:
    made: list[LLM] = []

    def make(in_flight: bool) -> InProcessLane:
        made.append(
            LLM(
                str(checkpoint),
                cache_dir=str(checkpoint.parent / "cache"),
                runtime="native",
                threads=1,
                quantisation="f32",
                enable_in_flight_batching=in_flight,
            )
        )
        return InProcessLane(made[-1])

    yield make
    for llm in made:
        llm.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await scenario()

    asyncio.run(bounded())


def chat(text: str, params: SamplingParams) -> GenerationRequest:
    return GenerationRequest(ChatPrompt([{"role": "user", "content": text}]), params)


async def answer(lane: InProcessLane, request: GenerationRequest) -> list[StreamDelta]:
    return await (await LaneReader.submit(lane, await lane.encode(request))).end()


async def scheduled(lane: InProcessLane, **expected: int) -> None:
    """Return once the counters say so; they may trail the end of a request by a moment."""
    while True:
        scheduling = lane.counters().scheduling
        assert scheduling is not None
        if expected.items() <= dict(scheduling).items():
            return
        await asyncio.sleep(0.001)


@PATHS
def test_a_lane_gives_what_the_python_api_gives(make_lane: MakeLane, in_flight: bool) -> None:
    async def scenario() -> None:
        lane = make_lane(in_flight)
        params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, num_logprobs=2)
        expected = lane._llm.chat([{"role": "user", "content": "ünïcödé 🙂"}], params)
        deltas = await answer(lane, chat("ünïcödé 🙂", params))
        assert "".join(delta.text for delta in deltas) == expected.text
        assert [token_id for delta in deltas for token_id in delta.token_ids] == expected.token_ids
        assert [step[0].token_id for delta in deltas for step in delta.logprobs or []] == expected.token_ids
        assert deltas[-1].prompt_tokens == expected.prompt_tokens
        assert deltas[-1].finish_reason == expected.finish_reason == "length"
        await lane.close()

    run(scenario)


def test_more_requests_than_seats_all_end(make_lane: MakeLane) -> None:
    async def scenario() -> None:
        lane = make_lane(True)
        params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
        texts = [f"question {number}" for number in range(24)]
        outputs = await asyncio.gather(*(answer(lane, chat(text, params)) for text in texts))
        alone = await asyncio.to_thread(lane._llm.generate, texts, params)
        for deltas, output in zip(outputs, alone, strict=True):
            assert "".join(delta.text for delta in deltas) == output.text
        await scheduled(lane, completed=48, failed=0, resident=0)
        await lane.close()

    run(scenario)


@PATHS
def test_a_cancelled_request_frees_its_seat(make_lane: MakeLane, in_flight: bool) -> None:
    async def scenario() -> None:
        lane = make_lane(in_flight)
        reader = await LaneReader.submit(lane, await lane.encode(chat("hi", LONG)))
        await reader.first()
        reader.cancel()
        with pytest.raises(RequestCancelledError):
            await reader.end()
        if in_flight:
            await scheduled(lane, cancelled=1, resident=0)
        assert (await answer(lane, chat("hi", SamplingParams(temperature=0, max_tokens=3))))[-1].finished
        await lane.close()

    run(scenario)


@PATHS
def test_refusals_come_before_anything_is_accepted(make_lane: MakeLane, in_flight: bool) -> None:
    async def scenario() -> None:
        lane = make_lane(in_flight)
        with pytest.raises(ContextLengthError):
            await lane.encode(chat("word " * 2000, LONG))
        bad_guide = SamplingParams(guided_decoding={"regex": "[0-9"})
        with pytest.raises(InvalidSchemaError):
            await answer(lane, chat("hi", bad_guide))
        reader = await LaneReader.submit(lane, await lane.encode(GenerationRequest(TextPrompt("hi"), LONG)))
        reader.cancel()
        with pytest.raises(RequestCancelledError):
            await reader.end()
        await lane.close()

    run(scenario)


def test_counters_move_with_the_work(make_lane: MakeLane) -> None:
    async def scenario() -> None:
        lane = make_lane(True)
        before = lane.counters()
        for _ in range(2):
            params = SamplingParams(temperature=0, max_tokens=5)
            await answer(lane, chat("a prompt that fills some pages " * 8, params))
        after = lane.counters()
        assert after.steps_completed > before.steps_completed
        assert before.context_cache is not None
        assert after.context_cache is not None
        assert after.context_cache["hit_sequences"] == 1
        assert after.context_cache["reused_tokens"] > 0
        assert after.context_cache["base_kv_pages_capacity"] > after.context_cache["base_kv_pages_free"]
        await lane.close()

    run(scenario)


@PATHS
def test_a_request_for_a_vector_ends_with_it_and_says_nothing(make_lane: MakeLane, in_flight: bool) -> None:
    async def scenario() -> None:
        lane = make_lane(in_flight)

        async def vector(text: str) -> list[float]:
            deltas = await answer(lane, GenerationRequest(TextPrompt(text), SamplingParams(), embedding=True))
            assert len(deltas) == 1
            last = deltas[0]
            assert (last.text, last.token_ids, last.finished, last.finish_reason) == ("", [], True, "stop")
            assert last.prompt_tokens
            assert last.embedding is not None
            return list(struct.unpack(f"<{VARIANTS['llama'].hidden_size}f", last.embedding))

        first = await vector("the quick brown fox")
        assert math.fsum(number * number for number in first) == pytest.approx(1.0)
        assert await vector("the quick brown fox") == pytest.approx(first, abs=1e-4)
        assert await vector("jumps over") != pytest.approx(first, abs=1e-2)
        answered = await answer(lane, chat("hello", SamplingParams(temperature=0, max_tokens=3)))
        assert answered[-1].embedding is None

    run(scenario)
