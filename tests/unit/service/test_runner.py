"""The daemon's life: HTTP before models, READY after a token, a drain at the first signal, an end at the second."""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import os
import pty
import signal
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import httpx
import pytest
from tests.unit.serving.scripted_lane import ScriptedLane, say_words, spec_of, until

from edgellm.api.app import create_app
from edgellm.config import Settings
from edgellm.errors import CheckpointError, EdgeLLMError, ForcedShutdownError, WorkerFailedError
from edgellm.service.address import listen
from edgellm.service.notify import Supervisor
from edgellm.service.reload import ReloadedFiles
from edgellm.service.runner import WATCH_SECONDS, Application, Daemon, Source
from edgellm.serving.model_spec import LoadProgress, ModelSpec, OpenedModel, ReportProgress


class HeardSupervisor(Supervisor):
    """Remembers what systemd would have been told."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def _send(self, state: str, *, wait_seconds: float) -> None:
        self.heard += state.split("\n")

    def has_heard(self, word: str) -> bool:
        return any(state.startswith(word) for state in self.heard)


class RunningDaemon:
    """A daemon on this thread's event loop, with its output and what it told its supervisor."""

    def __init__(
        self, *specs: ModelSpec, output: TextIO | None = None, files: Sequence[ReloadedFiles] = (), **settings: object
    ) -> None:
        self.listener = listen("127.0.0.1", 0)
        self.output = io.StringIO()
        self.supervisor = HeardSupervisor()
        self.daemon = Daemon(
            Settings.model_validate(settings),
            self.listener,
            specs,
            lambda client: Application(create_app(client), files),
            supervisor=self.supervisor,
            output=output or self.output,
        )
        self.url = self.listener.url

    async def status_of(self, path: str) -> int:
        async with httpx.AsyncClient(base_url=self.url) as client:
            return (await client.get(path)).status_code

    async def ask(self) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, timeout=30) as client:
            body = {"messages": [{"role": "user", "content": "Hi"}]}
            return await client.post("/v1/chat/completions", json=body)

    async def ready(self) -> None:
        await until(lambda: self.supervisor.has_heard("READY=1"))


def interrupt(number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


def run(running: RunningDaemon, story: Callable[[], Awaitable[None]]) -> None:
    """The daemon and a story about it, both to their ends."""
    assert threading.current_thread() is threading.main_thread()

    async def both() -> None:
        async with asyncio.timeout(60):
            serving = asyncio.create_task(running.daemon.run())
            try:
                await story()
            except BaseException:
                serving.cancel()
                raise
            finally:
                await asyncio.wait((serving,))
            serving.result()

    asyncio.run(both())


def gated_spec(gate: asyncio.Event, lane: ScriptedLane) -> ModelSpec:
    async def open_lanes(report: ReportProgress) -> OpenedModel:
        report(LoadProgress("lowering", 0.5))
        await gate.wait()
        return OpenedModel([lane])

    return ModelSpec("tiny", open_lanes)


def test_http_answers_while_models_load_and_ready_comes_after() -> None:
    gate, lane = asyncio.Event(), ScriptedLane()
    running = RunningDaemon(gated_spec(gate, lane))

    async def story() -> None:
        await until(lambda: "tiny: lowering" in running.output.getvalue())
        assert await running.status_of("/health/live") == 200
        assert await running.status_of("/health/ready") == 503
        assert "STATUS=tiny: lowering 50%" in running.supervisor.heard
        assert running.supervisor.has_heard("EXTEND_TIMEOUT_USEC=")
        assert not running.supervisor.has_heard("READY=1")
        gate.set()
        await running.ready()
        assert await running.status_of("/health/ready") == 200
        interrupt()

    run(running, story)
    assert lane.closed == 1
    extension, stopping, status = running.supervisor.heard[-3:]
    assert (extension.partition("=")[0], stopping) == ("EXTEND_TIMEOUT_USEC", "STOPPING=1")
    assert status.startswith("STATUS=")


def test_how_to_talk_to_it_is_said_once_it_is_ready() -> None:
    running = RunningDaemon(spec_of(ScriptedLane()))

    async def story() -> None:
        await running.ready()
        interrupt(signal.SIGINT)

    run(running, story)
    output = running.output.getvalue()
    assert output.index(f"listening on {running.url}") < output.index("ready after") < output.index("  curl    curl ")
    assert f"  URL     {running.url}/v1\n" in output
    assert "  Python  " in output


def test_the_first_signal_lets_a_running_request_finish() -> None:
    lane = ScriptedLane()
    running = RunningDaemon(spec_of(lane))

    async def story() -> None:
        await running.ready()
        asking = asyncio.create_task(running.ask())
        await until(lambda: bool(lane.generations))
        interrupt()
        await until(lambda: "finishing 1 running request" in running.output.getvalue())
        refused = await running.ask()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        lane.generations[0].say("done")
        lane.generations[0].finish()
        answer = await asking
        assert answer.json()["choices"][0]["message"]["content"] == "done"

    run(running, story)
    assert not lane.generations[0].cancelled


def test_the_second_signal_cancels_what_still_runs() -> None:
    lane = ScriptedLane()
    running = RunningDaemon(spec_of(lane), admission={"shutdown_drain_seconds": 600})

    async def story() -> None:
        await running.ready()
        asking = asyncio.create_task(running.ask())
        await until(lambda: bool(lane.generations))
        interrupt()
        await until(lambda: "interrupt again" in running.output.getvalue())
        interrupt()
        assert (await asking).status_code == 503

    with pytest.raises(ForcedShutdownError, match="1 request"):
        run(running, story)
    assert lane.generations[0].cancelled
    assert lane.closed == 1


def test_an_interrupt_while_loading_ends_at_once() -> None:
    running = RunningDaemon(gated_spec(asyncio.Event(), ScriptedLane()))

    async def story() -> None:
        await until(lambda: "tiny: lowering" in running.output.getvalue())
        interrupt(signal.SIGINT)

    run(running, story)
    assert not running.supervisor.has_heard("READY=1")


@pytest.mark.parametrize(
    ("failure", "expected"),
    [(CheckpointError("weights.gguf is damaged"), CheckpointError), (ZeroDivisionError(), WorkerFailedError)],
)
def test_a_required_model_that_does_not_load_ends_the_daemon_with_its_error(
    failure: Exception, expected: type[EdgeLLMError]
) -> None:
    async def fail(_report: ReportProgress) -> OpenedModel:
        raise failure

    running = RunningDaemon(ModelSpec("tiny", fail))

    async def story() -> None:
        """It ends by itself."""

    with pytest.raises(expected):
        run(running, story)
    assert not running.supervisor.has_heard("READY=1")


def test_the_supervisor_is_told_once_what_several_models_do() -> None:
    gate = asyncio.Event()
    running = RunningDaemon(
        gated_spec(gate, ScriptedLane()), replace(gated_spec(gate, ScriptedLane()), name="other", required=False)
    )

    async def story() -> None:
        await until(lambda: running.supervisor.has_heard("STATUS=tiny: lowering 50%"))
        await asyncio.sleep(5 * WATCH_SECONDS)
        gate.set()
        await running.ready()
        interrupt()

    run(running, story)
    said = [state for state in running.supervisor.heard if state.startswith("STATUS=tiny: lowering")]
    assert said == ["STATUS=tiny: lowering 50%; other: lowering 50%"]
    assert running.output.getvalue().count("other: lowering 50%") == 1


def test_each_model_that_does_not_load_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    def failing(name: str) -> ModelSpec:
        async def fail(_report: ReportProgress) -> OpenedModel:
            raise CheckpointError(f"{name}.gguf is damaged — get it anew")

        return ModelSpec(name, fail)

    running = RunningDaemon(failing("first"), failing("second"))

    async def story() -> None:
        """It ends by itself."""

    with pytest.raises(CheckpointError, match=r"^model first did not load: first\.gguf is damaged — get it anew$"):
        run(running, story)
    said = [record.getMessage() for record in caplog.records if "damaged" in record.getMessage()]
    assert said == ["model second did not load: second.gguf is damaged — get it anew"]


def test_a_hangup_reads_files_anew_and_drops_no_request() -> None:
    lane = ScriptedLane()
    read: list[str] = []
    running = RunningDaemon(
        spec_of(lane), files=[ReloadedFiles("keys", [], lambda: read.append("keys"), check=lambda: None)]
    )

    async def story() -> None:
        await running.ready()
        asking = asyncio.create_task(running.ask())
        await until(lambda: bool(lane.generations))
        interrupt(signal.SIGHUP)
        await until(lambda: read == ["keys"])
        lane.generations[0].say("done")
        lane.generations[0].finish()
        assert (await asking).status_code == 200
        assert await running.status_of("/health/ready") == 200
        interrupt()

    run(running, story)


def test_a_hangup_takes_the_configuration_on_between_reloading_and_ready() -> None:
    first, second = ScriptedLane(), ScriptedLane()
    running = RunningDaemon(spec_of(first))
    configured = [Settings.model_validate({"server": {"port": 1}})]
    running.daemon._source = Source(lambda: configured[0], lambda _: [spec_of(first), spec_of(second, name="new")])

    async def story() -> None:
        await running.ready()
        interrupt(signal.SIGHUP)
        await until(lambda: running.supervisor.heard.count("READY=1") == 2)
        assert await running.status_of("/v1/models/new") == 404, "a port cannot change, so nothing does"
        configured[0] = Settings()
        interrupt(signal.SIGHUP)
        await until(lambda: running.supervisor.heard.count("READY=1") == 3)
        assert await running.status_of("/v1/models/new") == 200
        interrupt()

    run(running, story)
    heard = [state for state in running.supervisor.heard if state in ("READY=1", "RELOADING=1", "STOPPING=1")]
    assert heard == ["READY=1", "RELOADING=1", "READY=1", "RELOADING=1", "READY=1", "STOPPING=1"]
    assert running.supervisor.has_heard("MONOTONIC_USEC=")
    assert (first.closed, second.closed) == (1, 1)


def test_a_hangup_takes_records_and_the_log_level_on(tmp_path: Path) -> None:
    lane = ScriptedLane(say_words("done"))
    levels: list[str] = []

    async def open_lanes(_report: ReportProgress) -> OpenedModel:
        return OpenedModel([lane], log_at=levels.append)

    spec = ModelSpec("tiny", open_lanes)
    running = RunningDaemon(spec)
    configured = [Settings.model_validate({"records": {"file": str(tmp_path / "nowhere" / "records")}})]
    running.daemon._source = Source(lambda: configured[0], lambda _: [spec])
    written = tmp_path / "records"

    async def story() -> None:
        await running.ready()
        interrupt(signal.SIGHUP)
        await until(lambda: running.supervisor.heard.count("READY=1") == 2)
        assert (await running.ask()).status_code == 200
        assert levels == [], "a file that cannot be written is refused, and nothing is taken on"
        configured[0] = Settings.model_validate({"records": {"file": str(written)}, "log": {"level": "warning"}})
        interrupt(signal.SIGHUP)
        await until(lambda: running.supervisor.heard.count("READY=1") == 3)
        assert levels == ["warning"]
        assert (await running.ask()).status_code == 200
        await until(lambda: written.exists() and written.read_text().count("\n") == 1)
        interrupt()

    level = logging.getLogger().level
    try:
        run(running, story)
    finally:
        logging.getLogger().setLevel(level)


def test_when_its_terminal_goes_the_daemon_drains_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    lane = ScriptedLane()
    running = RunningDaemon(spec_of(lane))
    terminal, other_end = pty.openpty()

    async def story() -> None:
        await running.ready()
        asking = asyncio.create_task(running.ask())
        await until(lambda: bool(lane.generations))
        interrupt(signal.SIGHUP)
        await until(lambda: "finishing 1 running request" in running.output.getvalue())
        lane.generations[0].say("done")
        lane.generations[0].finish()
        assert (await asking).status_code == 200

    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        run(running, story)
    os.close(other_end)


class FullDisk(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_under_standard_output_does_not_end_serving() -> None:
    running = RunningDaemon(spec_of(ScriptedLane()), output=FullDisk())

    async def story() -> None:
        await running.ready()
        assert await running.status_of("/health/ready") == 200
        interrupt()

    run(running, story)


def test_a_model_that_is_not_required_may_be_missing(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_report: ReportProgress) -> OpenedModel:
        raise CheckpointError("weights.gguf is damaged")

    running = RunningDaemon(spec_of(ScriptedLane()), ModelSpec("spare", fail, required=False))

    async def story() -> None:
        await running.ready()
        interrupt()

    run(running, story)
    assert "model spare did not load: weights.gguf is damaged" in caplog.text
    assert "  model   tiny: ready\n  model   spare: unavailable: weights.gguf is damaged\n" in running.output.getvalue()
