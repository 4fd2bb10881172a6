"""edgellm health: ready, or why not, by the exit code that a health check looks at."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edgellm.cli.main import main
from edgellm.errors import DaemonUnreachableError, EdgeLLMError, LoadUnfinishedError, WorkerFailedError
from edgellm.service.admin_messages import Done, Health
from edgellm.service.admin_server import AdminServer, open_admin_socket


def ask(path: Path, answer: Done | EdgeLLMError) -> int:
    async def health(_: Health) -> Done:
        if isinstance(answer, EdgeLLMError):
            raise answer
        return answer

    async def scenario() -> int:
        listener = open_admin_socket(path, {})
        assert listener is not None
        server = AdminServer(listener, {Health: health})
        await server.start()
        code = await asyncio.to_thread(main, ["health", "--admin-socket", str(path)])
        await server.close()
        return code

    return asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_ready_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(tmp_path / "a.sock", Done(["serving on http://127.0.0.1:8000"])) == 0
    assert capsys.readouterr().out == "serving on http://127.0.0.1:8000\n"


@pytest.mark.parametrize(
    "error",
    [LoadUnfinishedError("still loading: a"), WorkerFailedError("a is unavailable"), DaemonUnreachableError("b")],
)
def test_one_that_is_not_ready_says_why(
    tmp_path: Path, error: EdgeLLMError, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(tmp_path / "a.sock", error) == error.exit_code != 0
    assert str(error) in capsys.readouterr().err


def test_no_daemon(tmp_path: Path) -> None:
    code = main(["health", "--admin-socket", str(tmp_path / "none.sock")])
    assert code == DaemonUnreachableError.exit_code
