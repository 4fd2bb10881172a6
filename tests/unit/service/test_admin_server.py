"""The admin socket: what a dead daemon left is taken over, a living one and other files never."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgellm.errors import ConfigError, DaemonUnreachableError, ModelSourceError
from edgellm.service.admin_client import ask_daemon
from edgellm.service.admin_messages import Done, Reload
from edgellm.service.admin_server import AdminServer, open_admin_socket


def serve_and_ask(path: Path, *answers: Sequence[str] | Exception) -> list[Sequence[str] | Exception]:
    """What a client hears of a server that answers so, one after the other."""
    heard: list[Sequence[str] | Exception] = []
    following = iter(answers)

    async def reload(request: Reload) -> Done:
        answer = next(following)
        if isinstance(answer, Exception):
            raise answer
        return Done(list(answer))

    async def scenario() -> None:
        listener = open_admin_socket(path, {})
        assert listener is not None
        server = AdminServer(listener, {Reload: reload})
        await server.start()
        for _ in answers:
            try:
                heard.append((await asyncio.to_thread(ask_daemon, path, Reload())).lines)
            except Exception as error:
                heard.append(error)
        await server.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))
    assert not path.exists()
    return heard


def test_answers_and_errors_arrive_as_what_they_are(tmp_path: Path) -> None:
    lines, missing, wrong = serve_and_ask(
        tmp_path / "new" / "admin.sock", ["a", "b"], ModelSourceError("/nowhere"), ConfigError("server.port is wrong")
    )
    assert lines == ["a", "b"]
    assert isinstance(missing, ModelSourceError)
    assert isinstance(wrong, ConfigError)
    assert str(wrong) == "server.port is wrong"


def test_a_socket_that_a_dead_daemon_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert serve_and_ask(path, []) == [[]]


def test_a_living_daemons_socket_and_other_files_stay(tmp_path: Path) -> None:
    path, file = tmp_path / "admin.sock", tmp_path / "file"
    file.write_text("mine")
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(path))
        living.listen()
        with pytest.raises(ConfigError, match="another daemon answers there"):
            open_admin_socket(path, {})
        assert path.exists()
    with pytest.raises(ConfigError, match="is no socket"):
        open_admin_socket(file, {})
    assert file.read_text() == "mine"
    with pytest.raises(ConfigError, match="admin_socket"):
        open_admin_socket(tmp_path / ("long" * 40), {})


def test_the_default_is_the_first_place_that_can_be_used(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("no folder")
    listener = open_admin_socket(None, {"RUNTIME_DIRECTORY": str(blocked), "XDG_RUNTIME_DIR": str(tmp_path)})
    assert listener is not None
    with listener:
        assert Path(listener.getsockname()) == tmp_path / "edgellm" / "admin.sock"


def test_without_a_daemon_the_client_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnreachableError, match=r"no daemon answers at .*admin\.sock"):
        ask_daemon(tmp_path / "admin.sock", Reload())
