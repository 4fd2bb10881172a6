"""Records of an EngineClient's requests: one a request, with its outcome and times, and text only when asked for."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.unit.serving.engine_scenario import everything, job, run
from tests.unit.serving.scripted_lane import PROMPT_TOKENS, ScriptedLane, say_words, spec_of, until

from edgellm.errors import (
    ContextLengthError,
    ModelNotFoundError,
    RecordNotFoundError,
    ServerBusyError,
    WorkerFailedError,
)
from edgellm.serving.engine_client import EngineClient, GenerationJob
from edgellm.serving.generation import CancelCause
from edgellm.serving.record_file import RecordFileSettings
from edgellm.serving.records import RecordSettings
from edgellm.serving.settings import ServingSettings

CANARY = "my secret words"


async def recorded(path: Path, lane: ScriptedLane, *, include_text: bool = False, **settings: Any) -> EngineClient:
    records = RecordSettings(RecordFileSettings(path), include_text)
    engine = EngineClient([spec_of(lane)], ServingSettings(**settings), records)
    engine.start()
    await engine.opened()
    return engine


def records_in(path: Path) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({line["id"] for line in lines}) == len(lines)
    return {line["id"]: line for line in lines}


def test_every_end_of_a_request_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "records"

    async def scenario() -> None:
        lane = ScriptedLane(max_batch_size=1)
        engine = await recorded(path, lane, max_queued_requests=0)
        lane.script = say_words("be", "cause")
        await everything(await engine.generate(job("fine", client="alice", choices=2)))
        lane.script = None
        running = await engine.generate(job("slow", client="bob"))
        with pytest.raises(ServerBusyError):
            await engine.generate(job("one too many", client="bob"))
        running.cancel(CancelCause.CLIENT_LEFT)
        await running.ended()
        late = await engine.generate(job("late", client="bob"))
        late.cancel(CancelCause.TIMED_OUT)
        await late.ended()
        lane.script = lambda generation: generation.fail(WorkerFailedError("gone"))
        broken = await engine.generate(job("broken", client="bob"))
        with pytest.raises(WorkerFailedError):
            await everything(broken)
        with pytest.raises(ContextLengthError):
            await engine.generate(job("too long", "too long"))
        with pytest.raises(ModelNotFoundError):
            await engine.generate(GenerationJob("nobody", (), "elsewhere"))
        await engine.close()

    run(scenario())
    found = records_in(path)
    assert {name: (each["outcome"], each["error"]) for name, each in found.items()} == {
        "fine": ("success", None),
        "slow": ("disconnected", "request_cancelled"),
        "one too many": ("saturated", "server_busy"),
        "late": ("timed_out", "request_timeout"),
        "broken": ("error", "worker_failed"),
        "too long": ("refused", "context_length_exceeded"),
        "elsewhere": ("refused", "model_not_found"),
    }
    fine = found["fine"]
    assert (fine["client"], fine["model"], fine["lanes"], fine["choices"]) == ("alice", "tiny", ["0"], 2)
    assert (fine["prompt_tokens"], fine["generated_tokens"]) == (2 * PROMPT_TOKENS, 4)
    assert fine["finish_reasons"] == {"stop": 2}
    stages = [fine[f"{stage}_seconds"] for stage in ("queue", "prefill", "decode", "native")]
    assert all(seconds >= 0 for seconds in stages)
    assert sum(stages[:3]) <= fine["total_seconds"]
    busy = found["one too many"]
    assert (busy["prefill_seconds"], busy["native_seconds"], busy["lanes"]) == (None, None, [])


def test_text_is_in_the_file_only_when_it_was_asked_for_and_never_in_memory(tmp_path: Path) -> None:
    async def one(path: Path, *, include_text: bool) -> None:
        engine = await recorded(path, ScriptedLane(say_words("an ", CANARY)), include_text=include_text)
        await everything(await engine.generate(job("r", f"tell me {CANARY}", client="alice")))
        await until(lambda: not engine.running_requests)
        assert engine.records is not None
        assert CANARY not in json.dumps(engine.records.find("alice", "r"))
        await engine.close()

    run(one(tmp_path / "without", include_text=False))
    assert CANARY not in (tmp_path / "without").read_text()
    run(one(tmp_path / "with", include_text=True))
    record = records_in(tmp_path / "with")["r"]
    assert record["prompts"] == [f"tell me {CANARY}"]
    assert record["answers"] == [f"an {CANARY}"]


def test_memory_keeps_the_latest_of_each_client_and_forgets_whom_it_is_told_to(tmp_path: Path) -> None:
    async def scenario() -> None:
        lane = ScriptedLane(say_words("hi"))
        engine = await recorded(tmp_path / "records", lane)
        records = engine.records
        assert records is not None
        records._entries_max = 3
        for client, name in (("alice", "1"), ("bob", "1"), ("alice", "2"), ("alice", "3")):
            await everything(await engine.generate(job(name, client=client)))
        await until(lambda: not engine.running_requests)
        assert records.find("bob", "1")["client"] == "bob"
        for client, name in (("alice", "1"), ("bob", "2"), ("carol", "3")):
            with pytest.raises(RecordNotFoundError):
                records.find(client, name)
        records.forget("alice")
        with pytest.raises(RecordNotFoundError):
            records.find("alice", "3")
        assert records.find("bob", "1")["id"] == "1"
        await engine.close()

    run(scenario())


def test_a_file_that_cannot_be_written_is_counted_and_requests_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = await recorded(tmp_path / "nowhere" / "records", ScriptedLane(say_words("hi")))
        for number in range(3):
            assert await everything(await engine.generate(job(str(number)))) == {0: "hi"}

        def lost() -> float:
            return engine.counters.registry.get_sample_value("edgellm_records_total", {"result": "lost"}) or 0.0

        await until(lambda: lost() == 3)
        await engine.close()

    run(scenario())


def test_a_caller_that_leaves_the_queue_is_one_line(tmp_path: Path) -> None:
    async def scenario() -> None:
        lane = ScriptedLane(max_batch_size=1)
        engine = await recorded(tmp_path / "records", lane)
        running = await engine.generate(job("first"))
        waiting = asyncio.ensure_future(engine.generate(job("second")))
        await until(lambda: engine.model("tiny").admission.waiting == 1)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        running.cancel(CancelCause.SHUTTING_DOWN)
        await running.ended()
        await engine.close()

    run(scenario())
    found = records_in(tmp_path / "records")
    assert {name: each["outcome"] for name, each in found.items()} == {"first": "unavailable", "second": "disconnected"}
    assert found["second"]["queue_seconds"] is not None
    assert found["second"]["native_seconds"] is None


def test_new_settings_hold_for_what_ends_from_then_on(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"

    async def scenario() -> None:
        lane = ScriptedLane(max_batch_size=1)
        engine = await recorded(before, lane, include_text=True)
        specs, settings = [engine.models[0].spec], ServingSettings()
        first = await engine.generate(job("first", CANARY))
        lane.generations[0].finish()
        await first.ended()
        began_with_text = await engine.generate(job("second", CANARY))
        engine.reconfigure(specs, settings, RecordSettings(RecordFileSettings(after)))
        lane.generations[1].finish()
        await began_with_text.ended()
        records = engine.records
        assert records is not None
        assert {records.find("", name)["id"] for name in ("first", "second")} == {"first", "second"}
        # A file that is given up is written to its end beside one that begins.
        await until(lambda: after.exists() and "second" in after.read_text())
        engine.reconfigure(specs, settings, None)
        assert engine.records is None
        unrecorded = await engine.generate(job("third"))
        lane.generations[2].finish()
        await unrecorded.ended()
        engine.reconfigure(specs, settings, RecordSettings(RecordFileSettings(after), include_text=True))
        last = await engine.generate(job("fourth", CANARY))
        lane.generations[3].finish()
        await last.ended()
        await engine.close()
        await until(lambda: before.exists() and after.exists() and "fourth" in after.read_text())

    run(scenario())
    assert list(records_in(before)) == ["first"]
    assert CANARY in before.read_text()
    found = records_in(after)
    assert list(found) == ["second", "fourth"]
    assert "prompts" not in found["second"]
    assert "prompts" in found["fourth"]
