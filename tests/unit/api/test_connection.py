"""One connection, byte for byte: heads, deadlines, unread answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import uvicorn
from tests.unit.api.asgi_client import run
from tests.unit.serving.scripted_lane import settle, until
from uvicorn.server import ServerState

from edgellm.api.connection import BoundedHttpProtocol
from edgellm.api.settings import ServerSettings

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class MemoryTransport(asyncio.Transport):
    """Keeps what is written; a client that does not read leaves it in the buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False
        self.aborted = False
        self.unread_bytes = 0
        self.protocol: BoundedHttpProtocol | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def write_eof(self) -> None: ...

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            assert self.protocol is not None
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    @property
    def status(self) -> int:
        return int(self.written.split(b" ", 2)[1])

    @property
    def error_code(self) -> str:
        code: str = json.loads(self.written.partition(b"\r\n\r\n")[2])["error"]["code"]
        return code


async def greet(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


def connect(
    state: ServerState | None = None, app: Any = greet, **settings: Any
) -> tuple[BoundedHttpProtocol, MemoryTransport]:
    config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none", proxy_headers=False)
    protocol = BoundedHttpProtocol(config, state or ServerState(), {}, settings=ServerSettings(**settings))
    transport = MemoryTransport()
    transport.protocol = protocol
    protocol.connection_made(transport)
    return protocol, transport


def test_requests_follow_each_other_on_a_connection() -> None:
    async def scenario() -> None:
        protocol, transport = connect()
        for number in (1, 2, 3):
            protocol.data_received(REQUEST)
            await until(lambda number=number: transport.written.count(b"200 OK") == number)  # type: ignore[misc]
        transport.close()

    run(scenario())


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 5000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 5000,  # and never ends
        b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % number for number in range(60)) + b"\r\n",
    ],
    ids=["a long header", "a header that does not end", "a long path", "many headers"],
)
@pytest.mark.parametrize("piece_bytes", [7, 100_000])
def test_a_head_beyond_its_bounds_is_a_431(head: bytes, piece_bytes: int) -> None:
    async def scenario() -> None:
        protocol, transport = connect(head_bytes_max=4000, header_count_max=50)
        protocol.data_received(REQUEST)
        await until(lambda: b"200 OK" in transport.written)
        transport.written = b""
        for start in range(0, len(head), piece_bytes):
            protocol.data_received(head[start : start + piece_bytes])
        assert (transport.status, transport.error_code) == (431, "request_too_large")
        transport.close()

    run(scenario())


def test_a_body_does_not_count_as_head() -> None:
    async def scenario() -> None:
        protocol, transport = connect(head_bytes_max=1000)
        protocol.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n" + b"x" * 9000)
        await until(lambda: b"200 OK" in transport.written)
        transport.close()

    run(scenario())


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00", b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 50]
)
def test_bytes_that_are_no_http_get_an_error_object(garbage: bytes) -> None:
    async def scenario() -> None:
        protocol, transport = connect()
        protocol.data_received(garbage)
        assert (transport.status, transport.error_code) == (400, "invalid_value")
        protocol.data_received(REQUEST)  # nothing more is answered
        await settle()
        assert transport.written.count(b"HTTP/1.1 400") == 1
        transport.close()

    run(scenario())


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHo"])
def test_a_head_that_does_not_come_in_time_ends_the_connection(sent: bytes) -> None:
    async def scenario() -> None:
        protocol, transport = connect(header_deadline_seconds=0.01)
        if sent:
            protocol.data_received(sent)
        await until(lambda: transport.aborted)

    run(scenario())


def test_dribbled_bytes_do_not_move_the_deadline() -> None:
    async def scenario() -> None:
        protocol, transport = connect(header_deadline_seconds=0.05)
        protocol.data_received(b"GET / HTTP/1.1\r\n")

        async def dribble() -> None:
            while not transport.closed:
                protocol.data_received(b"x: y\r\n")
                await asyncio.sleep(0.005)

        await asyncio.wait_for(dribble(), 10)
        assert transport.aborted

    run(scenario())


def test_an_answer_that_nobody_reads_ends_the_connection_and_the_request_hears_of_it() -> None:
    async def scenario() -> None:
        heard = asyncio.Event()

        async def endless(scope: Any, receive: Any, send: Any) -> None:
            assert (await receive())["type"] == "http.request"
            assert (await receive())["type"] == "http.disconnect"
            heard.set()

        protocol, transport = connect(app=endless, write_deadline_seconds=0.01)
        protocol.data_received(REQUEST)
        await settle()
        transport.unread_bytes = 70_000
        protocol.pause_writing()
        await asyncio.wait_for(heard.wait(), 10)
        assert transport.aborted

    run(scenario())


def test_a_reader_that_catches_up_keeps_its_connection() -> None:
    async def scenario() -> None:
        protocol, transport = connect(write_deadline_seconds=0.01)
        transport.unread_bytes = 70_000
        protocol.pause_writing()
        transport.unread_bytes = 0
        protocol.resume_writing()
        await asyncio.sleep(0.03)
        assert not transport.aborted
        transport.close()

    run(scenario())


def test_a_short_answer_left_unread_ends_the_connection_too() -> None:
    async def scenario() -> None:
        protocol, transport = connect(write_deadline_seconds=0.01)
        transport.unread_bytes = 100
        protocol.data_received(REQUEST)
        await until(lambda: transport.aborted)

    run(scenario())


def test_connections_beyond_the_cap_are_told_so() -> None:
    async def scenario() -> None:
        state = ServerState()
        _, first = connect(state, connections_max=1)
        _, second = connect(state, connections_max=1)
        assert (second.status, second.error_code, second.closed) == (503, "server_busy", True)
        assert b"retry-after: 1" in second.written
        assert not first.closed
        first.close()

    run(scenario())
