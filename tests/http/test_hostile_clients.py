"""Clients that are slow, greedy or half gone: they are cut off, and nobody else notices."""

from __future__ import annotations

import json
import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.http.conftest import StartDaemon
from tests.http.daemon_process import STATE_DEADLINE_SECONDS, Daemon, chat_bytes, error_of, request_bytes

SLOW_CLIENTS = 500
HALF_A_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
OTHER_ADDRESS = "127.0.0.77"


@pytest.fixture(autouse=True)
def enough_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * SLOW_CLIENTS + 512
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this system lets a process open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(daemon: Daemon, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(daemon.address, timeout=STATE_DEADLINE_SECONDS, source_address=(source, 0))


def ended(connection: socket.socket) -> bool:
    """Whether the server has closed it; reads what it said before."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


def with_deadlines(start_daemon: StartDaemon, **seconds: float) -> Daemon:
    variables = {f"EDGELLM_SERVER_{name.upper()}_DEADLINE_SECONDS": str(value) for name, value in seconds.items()}
    daemon: Daemon = start_daemon(env={**os.environ, **variables})
    return daemon


def test_five_hundred_clients_that_dribble_leave_another_answered_and_are_cut_off(start_daemon: StartDaemon) -> None:
    daemon = with_deadlines(start_daemon, header=5)
    with ExitStack() as open_sockets:
        slow = [open_sockets.enter_context(connect(daemon)) for _ in range(SLOW_CLIENTS)]
        for connection in slow:
            connection.sendall(HALF_A_HEAD)
        answered = 0
        while not all(ended(connection) for connection in slow):
            daemon.still_serves()
            answered += 1
            for connection in slow:
                try:
                    connection.send(b"x")
                except OSError:  # it has been cut off
                    continue
            time.sleep(0.2)
        assert answered >= 1
    daemon.still_serves()


def test_one_address_cannot_take_every_connection(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(
        env={
            **os.environ,
            "EDGELLM_SERVER_CONNECTIONS_MAX": "300",
            "EDGELLM_SERVER_CONNECTIONS_PER_ADDRESS_MAX": "200",
            "EDGELLM_SERVER_HEADER_DEADLINE_SECONDS": "600",  # none of them ends before it is looked at
        }
    )
    with ExitStack() as open_sockets:
        greedy = [open_sockets.enter_context(connect(daemon, OTHER_ADDRESS)) for _ in range(SLOW_CLIENTS)]
        for connection in greedy[200:]:
            status, error = error_of(_all(connection))
            assert (status, error["code"]) == (503, "server_busy")
        daemon.still_serves()
        assert not any(ended(connection) for connection in greedy[:200])


def _all(connection: socket.socket) -> bytes:
    received = b""
    while data := connection.recv(65536):
        received += data
    return received


def test_a_body_that_does_not_come_in_time_is_a_408(start_daemon: StartDaemon) -> None:
    daemon = with_deadlines(start_daemon, body=1)
    whole = request_bytes(b'{"messages": []}' + b" " * 1000)
    status, error = error_of(daemon.talk(whole[:-500]))
    assert (status, error["code"]) == (408, "request_timeout")
    daemon.still_serves()


def test_an_idle_connection_ends(start_daemon: StartDaemon) -> None:
    daemon = with_deadlines(start_daemon, idle=1, header=1)
    with connect(daemon) as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in _all(connection)


@pytest.mark.long
@pytest.mark.ci_slice
def test_a_client_that_reads_nothing_loses_its_stream_and_its_place(start_daemon: StartDaemon) -> None:
    daemon = with_deadlines(start_daemon, write=1)
    with socket.socket() as greedy:
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        greedy.settimeout(STATE_DEADLINE_SECONDS)
        greedy.connect(daemon.address)
        # Twenty alternatives a token make the stream large enough to fill what the system buffers.
        greedy.sendall(
            chat_bytes(stream=True, max_tokens=7000, logprobs=True, top_logprobs=20, logit_bias={"2": -100}, n=3)
        )
        daemon.wait_for(lambda: daemon.model_health()["running"] > 0)
        daemon.still_serves()
        daemon.wait_for(daemon.is_idle, 5 * STATE_DEADLINE_SECONDS)
    daemon.wait_for(lambda: daemon.scheduling("cancelled") >= 1)
    daemon.still_serves()


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_has_nothing_more_to_send_gets_its_answer(daemon: Daemon, stream: bool) -> None:
    with connect(daemon) as connection:
        connection.sendall(chat_bytes("Say hello.", stream=stream, max_tokens=20))
        connection.shutdown(socket.SHUT_WR)
        answer = _all(connection)
    interim, _, answer = answer.rpartition(b"HTTP/1.1 200 OK")
    assert interim.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"") == b""
    assert answer.endswith(b"0\r\n\r\n") if stream else json.loads(answer.partition(b"\r\n\r\n")[2])["choices"]
    if stream:
        assert b"data: [DONE]" in answer


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_is_half_gone_and_then_gone_frees_its_place(daemon: Daemon, stream: bool) -> None:
    with connect(daemon) as connection:
        connection.sendall(chat_bytes(stream=stream, max_tokens=7000, temperature=1.5, logit_bias={"2": -100}))
        daemon.wait_for(lambda: daemon.model_health()["running"] == 1)
        connection.shutdown(socket.SHUT_WR)
        time.sleep(0.5)
        assert daemon.model_health()["running"] == 1
    daemon.wait_for(daemon.is_idle)
    daemon.still_serves()
