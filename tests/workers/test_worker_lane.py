"""A model in a worker process: it says what the same model says in this process, and stops when it is told."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.workers.worker_scenario import (
    begin,
    is_running,
    lanes,
    only_model,
    pids,
    real,
    serving,
    token_ids,
    until,
)

from edgellm.errors import (
    ContextLengthError,
    InvalidSchemaError,
    ModelUnavailableError,
    RequestCancelledError,
    RequestError,
    UnsupportedModelError,
)
from edgellm.runtime.generation import GenerationRequest, TextPrompt
from edgellm.runtime.llm import LLM
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.generation import CancelCause
from edgellm.serving.model import ModelState


def test_a_worker_says_what_the_model_says_in_this_process(tiny_model: Path, cache_dir: Path) -> None:
    async def scenario() -> list[list[int]]:
        async with serving(real(tiny_model, cache_dir)) as client:
            together = [await begin(client, 24, text, ignore_eos=True) for text in ("hello", "a", "the end")]
            return [await token_ids(generation) for generation in together]

    answers = asyncio.run(scenario())
    with LLM(str(tiny_model), cache_dir=str(cache_dir), runtime="native", threads=1) as llm:
        loaded = llm.loaded
        assert loaded.capabilities.runtime == "native"
        for text, answer in zip(("hello", "a", "the end"), answers, strict=True):
            params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
            running = loaded.start(loaded.encode(GenerationRequest(TextPrompt(text), params)), lambda: None)
            assert list(running.result().output_ids[0]) == answer


def test_logprobs_usage_and_stop_strings_cross_the_frames(tiny_model: Path, cache_dir: Path) -> None:
    async def scenario() -> None:
        async with serving(real(tiny_model, cache_dir)) as client:
            generation = await begin(client, 12, num_logprobs=2, ignore_eos=True)
            deltas = []
            while taken := await generation.next_deltas():
                deltas += [each.delta for each in taken]
            rows = [row for delta in deltas for row in delta.logprobs or ()]
            assert len(rows) == sum(len(delta.token_ids) for delta in deltas) == 12
            assert all(len(row) in (2, 3) and isinstance(row[0].bytes, bytes) for row in rows)
            assert (deltas[-1].finish_reason, deltas[-1].prompt_tokens) == ("length", generation.report.prompt_tokens)
            whole = "".join(delta.text for delta in deltas)
            stop = whole[4:6]
            stopped = await begin(client, 12, ignore_eos=True, stop=[stop])
            text, end = "", None
            while taken := await stopped.next_deltas():
                text += "".join(each.delta.text for each in taken)
                end = taken[-1].delta
            assert end is not None
            assert (text, end.finish_reason, end.matched_stop) == (whole[: whole.index(stop)], "stop", 0)

    asyncio.run(scenario())


def test_what_cannot_be_run_is_refused_with_the_error_of_its_kind(tiny_model: Path, cache_dir: Path) -> None:
    async def scenario() -> None:
        async with serving(real(tiny_model, cache_dir, max_input_len=64)) as client:
            with pytest.raises(ContextLengthError):
                await begin(client, text="many words " * 40)
            with pytest.raises(InvalidSchemaError):
                await begin(client, guided_decoding={"regex": "(a"})
            with pytest.raises(RequestError, match="logit_bias"):
                await begin(client, logit_bias={100_000: 1.0})
            assert await token_ids(await begin(client))
            assert only_model(client).admission.running == 0

    asyncio.run(scenario())


def test_a_cancelled_request_frees_its_slot_and_the_worker_goes_on(tiny_model: Path, cache_dir: Path) -> None:
    async def scenario() -> None:
        async with serving(real(tiny_model, cache_dir, max_batch_size=1)) as client:
            before = pids(client)
            endless = await begin(client, 100_000, ignore_eos=True)
            await endless.next_deltas()
            endless.cancel(CancelCause.CLIENT_LEFT)
            await endless.ended()
            with pytest.raises(RequestCancelledError):
                await token_ids(endless)
            assert await token_ids(await begin(client))
            assert pids(client) == before
            await until(lambda: lanes(client)[0].counters().scheduling is not None, "counters")
            await until(
                lambda: (lanes(client)[0].counters().scheduling or {}).get("cancelled") == 1, "a cancel counted"
            )

    asyncio.run(scenario())


def test_a_reader_that_takes_nothing_holds_up_nobody(tiny_model: Path, cache_dir: Path) -> None:
    async def scenario() -> None:
        async with serving(real(tiny_model, cache_dir)) as client:
            unread = await begin(client, 100_000, ignore_eos=True)
            for _ in range(3):
                assert len(await token_ids(await begin(client, 200, ignore_eos=True))) == 200
            unread.cancel(CancelCause.CLIENT_LEFT)
            await unread.ended()

    asyncio.run(scenario())


def test_closing_ends_the_process_and_leaves_none(tiny_model: Path, cache_dir: Path) -> None:
    async def scenario() -> list[int]:
        async with serving(real(tiny_model, cache_dir), replicas=2) as client:
            running = pids(client)
            assert len(set(running)) == 2
            assert all(is_running(pid) for pid in running)
            return running

    assert not any(is_running(pid) for pid in asyncio.run(scenario()))


def _oom_score_adjustment(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text(encoding="ascii"))


def test_the_kernel_would_take_a_worker_before_the_daemon(tiny_model: Path, cache_dir: Path) -> None:
    async def scenario() -> None:
        async with serving(real(tiny_model, cache_dir)) as client:
            assert _oom_score_adjustment(pids(client)[0]) > _oom_score_adjustment(os.getpid())

    asyncio.run(scenario())


def test_a_worker_runs_on_the_cpus_it_was_given(tiny_model: Path, cache_dir: Path) -> None:
    cpu = max(os.sched_getaffinity(0))

    async def scenario() -> None:
        async with serving(replace(real(tiny_model, cache_dir), cpus=(cpu,))) as client:
            assert os.sched_getaffinity(pids(client)[0]) == {cpu}
            assert await token_ids(await begin(client))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("model", "error"), [("damaged.gguf", UnsupportedModelError), ("missing.gguf", None)], ids=["damaged", "missing"]
)
def test_a_model_that_cannot_be_loaded_says_why_and_leaves_no_process(
    tmp_path: Path, model: str, error: type[Exception] | None
) -> None:
    path = tmp_path / model
    if error is not None:
        path.write_bytes(b"GGUF" + b"\0" * 64)

    async def scenario() -> None:
        async with serving(real(path, tmp_path / "cache")) as client:
            failed = only_model(client)
            assert failed.state is ModelState.UNAVAILABLE
            assert failed.failure is not None
            assert model in str(failed.failure)
            with pytest.raises(ModelUnavailableError):
                await begin(client)

    asyncio.run(scenario())
