"""Workers that crash, hang, lie or never come: the request ends with an error, the lane comes back, others go on."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.workers.worker_scenario import (
    ROOT,
    SETTINGS,
    STATE_DEADLINE_SECONDS,
    begin,
    is_running,
    lanes,
    only_model,
    pids,
    real,
    serving,
    stand_in,
    talkative,
    token_ids,
    until,
)

from edgellm.engines.cache_directory import engines_dir
from edgellm.errors import ModelUnavailableError, WorkerFailedError
from edgellm.runtime.llm import LLM
from edgellm.serving.generation import CancelCause
from edgellm.serving.model import ModelState


@pytest.fixture(scope="session")
def bundle_dir(tiny_model: Path, cache_dir: Path) -> Path:
    """A bundle with the tokenizer that the front end reads."""
    with LLM(str(tiny_model), cache_dir=str(cache_dir), runtime="native", threads=1) as llm:
        assert engines_dir(cache_dir) in Path(llm.bundle_dir).parents
        return Path(llm.bundle_dir)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGSTOP], ids=str)
def test_a_worker_that_is_lost_costs_its_requests_and_comes_back(
    tiny_model: Path, cache_dir: Path, number: signal.Signals
) -> None:
    async def scenario() -> None:
        async with serving(real(tiny_model, cache_dir)) as client:
            model, before = only_model(client), pids(client)
            running = await begin(client, 100_000, ignore_eos=True)
            await running.next_deltas()
            os.kill(before[0], number)
            with pytest.raises(WorkerFailedError):
                await token_ids(running)
            assert model.admission.running == 0
            # It waits for the lane instead of being turned away.
            assert await token_ids(await begin(client))
            assert model.state is ModelState.READY
            assert pids(client) != before
            assert not is_running(before[0])

    asyncio.run(scenario())


def test_a_request_whose_worker_dies_before_it_said_anything_runs_again_once(tiny_model: Path, cache_dir: Path) -> None:
    async def scenario() -> None:
        async with serving(real(tiny_model, cache_dir, max_batch_size=1)) as client:
            model = only_model(client)
            os.kill(pids(client)[0], signal.SIGSTOP)
            starting = asyncio.create_task(begin(client))
            await until(lambda: model.admission.running == 1, "a request on the lane")
            os.kill(pids(client)[0], signal.SIGKILL)
            assert await token_ids(await starting)
            assert (model.admission.running, model.state) == (0, ModelState.READY)

    asyncio.run(scenario())


def test_a_request_that_waits_for_another_lane_can_be_cancelled(
    bundle_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        settings = replace(SETTINGS, restart_delay_seconds=3600.0, restart_delay_max_seconds=3600.0)
        spec = stand_in("never comes back in time", bundle_dir, monkeypatch)
        async with serving(spec, settings=settings) as client:
            model, first = only_model(client), pids(client)
            os.kill(first[0], signal.SIGKILL)  # this one is replaced at once, the next one after the delay
            await until(lambda: model.state is ModelState.READY and pids(client) != first, "a new worker")
            os.kill(pids(client)[0], signal.SIGSTOP)
            starting = asyncio.create_task(begin(client))
            await until(lambda: model.admission.running == 1, "a request on the lane")
            os.kill(pids(client)[0], signal.SIGKILL)
            await until(lambda: model.admission.waiting == 1, "a request that waits again")
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            await until(lambda: model.admission.waiting == 0 and client.running_requests == 0, "nothing left")

    asyncio.run(scenario())


def test_another_log_level_holds_for_the_worker_that_runs_and_for_the_one_after_it(
    tiny_model: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        said = ""

        def has_said(text: str) -> bool:
            nonlocal said
            said += capfd.readouterr().err
            return text in said

        async with serving(talkative(tiny_model, cache_dir, monkeypatch)) as client:
            await until(lambda: has_said("pong complained"), "a line at error")
            assert not has_said("pong said")
            client.log_at("info")
            await until(lambda: has_said("pong said"), "a line at info")
            before = pids(client)
            os.kill(before[0], signal.SIGKILL)
            await until(lambda: only_model(client).state is ModelState.READY and pids(client) != before, "a new worker")
            capfd.readouterr()
            said = ""
            await until(lambda: has_said("pong said"), "a line at info of the new worker")

    asyncio.run(scenario())


def test_one_replica_dies_and_the_other_does_not_drop_a_token(tiny_model: Path, cache_dir: Path) -> None:
    async def scenario() -> None:
        spec = real(tiny_model, cache_dir, max_batch_size=1)
        async with serving(spec, replicas=2) as client:
            alone = await token_ids(await begin(client, 400, ignore_eos=True))
            model = only_model(client)
            running = [await begin(client, 400, ignore_eos=True) for _ in range(2)]
            victim, survivor = lanes(client)
            os.kill(victim.process.pid, signal.SIGKILL)
            results = await asyncio.gather(*(token_ids(each) for each in running), return_exceptions=True)
            survived = [result for result in results if not isinstance(result, BaseException)]
            assert alone in survived
            assert survivor in model.lanes
            await until(lambda: model.state is ModelState.READY, "both replicas ready")
            assert len(model.lanes) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "mode",
    ["sends garbage", "closes its connection", "reports a broken runtime", "makes no step", "stops answering"],
)
def test_a_worker_that_does_not_behave_is_replaced(
    bundle_dir: Path, monkeypatch: pytest.MonkeyPatch, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with serving(stand_in(mode, bundle_dir, monkeypatch)) as client:
            model, before = only_model(client), pids(client)
            with pytest.raises(WorkerFailedError):
                await token_ids(await begin(client))
            await until(lambda: model.state is ModelState.READY and pids(client) != before, "a new worker")
            assert not is_running(before[0])
            assert model.admission.running == 0

    asyncio.run(scenario())
    assert any(record.levelname == "ERROR" and "worker of tiny" in record.getMessage() for record in caplog.records)


def test_a_worker_that_does_not_stop_a_cancelled_request_is_ended(
    bundle_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with serving(stand_in("keeps on", bundle_dir, monkeypatch)) as client:
            before = pids(client)
            running = await begin(client)
            await running.next_deltas()
            running.cancel(CancelCause.TIMED_OUT)
            await running.ended()
            await until(lambda: only_model(client).state is ModelState.READY, "a new worker")
            assert not is_running(before[0])

    asyncio.run(scenario())


@pytest.mark.parametrize("mode", ["dies while it loads", "says nothing"])
def test_a_worker_that_never_gets_ready_is_a_failed_start(
    bundle_dir: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    async def scenario() -> None:
        async with serving(stand_in(mode, bundle_dir, monkeypatch)) as client:
            model = only_model(client)
            assert model.state is ModelState.UNAVAILABLE
            assert isinstance(model.failure, WorkerFailedError)
            assert "while it loaded" in str(model.failure)

    asyncio.run(scenario())


def test_a_worker_that_is_lost_while_it_loads_gets_a_second_try(
    bundle_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_bundle = shutil.copytree(bundle_dir, tmp_path / "bundle")

    async def scenario() -> None:
        async with serving(stand_in("dies the first time", own_bundle, monkeypatch)) as client:
            assert only_model(client).state is ModelState.READY
            await begin(client)

    asyncio.run(scenario())


def test_a_worker_that_keeps_dying_is_given_up_after_its_budget(
    bundle_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        settings = replace(SETTINGS, restarts_max=2)
        spec = stand_in("dies after its warm-up", bundle_dir, monkeypatch)
        async with serving(spec, settings=settings) as client:
            model = only_model(client)
            await until(lambda: model.state is ModelState.UNAVAILABLE, "the end of the budget")
            with pytest.raises(ModelUnavailableError):
                await begin(client)

    asyncio.run(scenario())


def test_a_worker_that_ignores_shutdown_and_sigterm_is_killed(
    bundle_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> int:
        settings = replace(SETTINGS, shutdown_grace_seconds=0.2, terminate_grace_seconds=0.2)
        spec = stand_in("ignores every request to end", bundle_dir, monkeypatch)
        async with serving(spec, settings=settings) as client:
            return pids(client)[0]

    assert not is_running(asyncio.run(scenario()))


_PARENT = """
import asyncio, sys, time
from pathlib import Path
from tests.workers.worker_scenario import pids, real, serving
async def main():
    async with serving(real(Path(sys.argv[1]), Path(sys.argv[2]))) as client:
        print(pids(client)[0], flush=True)
        await asyncio.sleep(3600)
asyncio.run(main())
"""


def test_a_worker_does_not_outlive_its_daemon(tiny_model: Path, cache_dir: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, "-c", _PARENT, str(tiny_model), str(cache_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert is_running(worker)
        parent.kill()
        parent.wait(STATE_DEADLINE_SECONDS)
        asyncio.run(until(lambda: not is_running(worker), "the end of the worker"))
