"""Questions of the host tool to the server: where its socket is, and errors that say what is wrong."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgellm.errors import UpgradeError
from edgellm.host.admin_question import admin_socket, ask_server
from edgellm.host.paths import HostPaths


@contextmanager
def answering(path: Path, answer: bytes) -> Iterator[list[bytes]]:
    """A server on that socket that gives each question this answer; the questions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    questions: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                questions.append(connection.recv(65_536))
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield questions
        thread.join()


@pytest.fixture
def paths(tmp_path: Path) -> HostPaths:
    return HostPaths(tmp_path)


def test_the_server_is_asked_where_its_configuration_has_its_socket(paths: HostPaths) -> None:
    assert admin_socket(paths) == paths.at("run/edgellm/admin.sock")
    paths.configuration.parent.mkdir(parents=True)
    paths.configuration.write_text('admin_socket = "/run/other.sock"\n')
    with answering(paths.at("run/other.sock"), b'{"answer": "done"}\n') as questions:
        assert ask_server(paths, {"verb": "health"}) == {"answer": "done"}
    assert questions == [b'{"verb": "health"}\n']
    paths.configuration.write_text("admin_socket = \n")
    assert admin_socket(paths) == paths.at("run/edgellm/admin.sock")


@pytest.mark.parametrize("answer", [b"no JSON\n", b"[]\n", b"{}\n"])
def test_what_is_no_answer_is_said(paths: HostPaths, answer: bytes) -> None:
    with answering(paths.admin_socket, answer), pytest.raises(UpgradeError, match=r"admin\.sock answered something"):
        ask_server(paths, {"verb": "health"})


def test_a_server_that_ends_in_between_or_is_not_there_is_an_error_of_the_system(paths: HostPaths) -> None:
    with pytest.raises(FileNotFoundError):
        ask_server(paths, {"verb": "health"})
    with answering(paths.admin_socket, b'{"answer"'), pytest.raises(ConnectionError, match="before it answered"):
        ask_server(paths, {"verb": "health"})
