"""A worker that takes the machine's memory is ended and replaced, with its requests told why; others stay."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.models.bundles import lowered_bundle_of
from tests.workers.worker_scenario import (
    SETTINGS,
    begin,
    is_running,
    only_model,
    pids,
    real,
    serving,
    stand_in,
    token_ids,
    until,
)

from edgellm.errors import WorkerFailedError
from edgellm.runtime.process_memory import ResidentMemory
from edgellm.serving.model import ModelState
from edgellm.serving.worker import process
from edgellm.serving.worker.memory_watch import BYTES_PER_MIB, GROWTH_TO_BLAME_BYTES, MemoryWatch

TAKEN_MIB = 300
MORE_THAN_ANY_MACHINE_HAS_BYTES = 2**60


@pytest.fixture(scope="module")
def bundle_dir(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lowered_bundle_of(tiny_model, tmp_path_factory.mktemp("bundle") / "tiny").directory


@pytest.fixture(autouse=True)
def fresh_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has warned of belongs to one test."""
    monkeypatch.setattr(process, "MACHINE_MEMORY", MemoryWatch())


def test_a_worker_beyond_its_own_limit_is_replaced_and_its_request_told(
    bundle_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        settings = replace(SETTINGS, memory_bytes_max=200 * BYTES_PER_MIB)
        async with serving(stand_in(f"takes {TAKEN_MIB}", bundle_dir, monkeypatch), settings=settings) as client:
            model, before = only_model(client), pids(client)
            with pytest.raises(WorkerFailedError, match="was ended because it took too much memory"):
                await token_ids(await begin(client))
            await until(lambda: model.state is ModelState.READY and pids(client) != before, "a new worker")
            assert not is_running(before[0])
            assert (model.admission.running, client.running_requests) == (0, 0)

    asyncio.run(scenario())
    (line,) = [record.message for record in caplog.records if "memory_max_mib" in record.message]
    assert "MiB, more than workers.memory_max_mib allows (200 MiB)" in line


def test_of_several_the_one_that_grew_is_ended_when_the_machine_runs_short(
    bundle_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        settings = replace(SETTINGS, available_memory_bytes_min=MORE_THAN_ANY_MACHINE_HAS_BYTES)
        spec = stand_in(f"takes {TAKEN_MIB}", bundle_dir, monkeypatch)
        async with serving(spec, replicas=2, settings=settings) as client:
            model, before = only_model(client), pids(client)
            await until(lambda: "no worker is to blame" in caplog.text, "a warning")
            with pytest.raises(WorkerFailedError, match="took too much memory"):
                await token_ids(await begin(client))
            await until(lambda: model.state is ModelState.READY, "both workers")
            (stayed,) = set(before) & set(pids(client))
            assert is_running(stayed)
            assert (model.lanes_lost_total, model.lanes_restarted_total) == (1, 1)

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    (line,) = [record.message for record in caplog.records if "available_memory_min_mib" in record.message]
    grown = re.search(r"grew by (\d+) MiB and left this machine \d+ MiB", line)
    assert grown is not None, line
    assert int(grown[1]) * BYTES_PER_MIB >= GROWTH_TO_BLAME_BYTES  # it may have been seen in the middle of it


def test_a_machine_that_is_short_through_others_costs_no_worker(
    tiny_model: Path, cache_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        settings = replace(SETTINGS, available_memory_bytes_min=MORE_THAN_ANY_MACHINE_HAS_BYTES)
        async with serving(real(tiny_model, cache_dir), settings=settings) as client:
            before = pids(client)
            await until(lambda: "no worker is to blame" in caplog.text, "a warning")
            assert len(await token_ids(await begin(client, 64, ignore_eos=True))) == 64
            assert pids(client) == before

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert caplog.text.count("no worker is to blame") == 1


class Process:
    def __init__(self, pid: int) -> None:
        self.pid, self.name, self.has_exited, self.reason = pid, f"m/{pid}", False, ""

    def end_for_memory(self, reason: str) -> None:
        self.reason = reason


def test_gpu_workers_are_judged_by_what_the_machine_lost_and_one_goes_at_a_time() -> None:
    left_mib = 4000
    held_mib = {1: 100, 2: 100}

    def resident(pid: int) -> ResidentMemory:
        return ResidentMemory(held_mib[pid] * BYTES_PER_MIB, 0, 0)

    watch = MemoryWatch(lambda: left_mib * BYTES_PER_MIB, resident)
    native, gpu = Process(1), Process(2)

    def check() -> None:
        for each in (native, gpu):
            watch.check(each, worker_bytes_max=None, available_bytes_min=256 * BYTES_PER_MIB)

    for worker, runtime in ((native, "native"), (gpu, "tensorrt")):
        watch.add(worker)
        watch.loaded(worker, runtime)
    check()
    assert (native.reason, gpu.reason) == ("", "")
    left_mib, held_mib[1] = 100, 200
    check()
    assert "grew by 3900 MiB and left this machine 100 MiB" in gpu.reason
    assert not native.reason  # as long as the other one has not given back what it took
    gpu.has_exited = True
    check()
    assert "grew by 100 MiB" in native.reason
