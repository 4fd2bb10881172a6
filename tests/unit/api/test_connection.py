"""One connection, byte for byte: heads, deadlines, unread answers."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import pytest
from tests.unit.api.asgi_client import run
from tests.unit.api.memory_connection import connect, greet
from tests.unit.serving.scripted_lane import settle, until

from edgellm.api import limits
from edgellm.api.connection_counts import ConnectionCounts

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


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


@pytest.mark.parametrize("upgrade", [b"websocket", b"h2c"])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size_bytes", [0, 9000])
@pytest.mark.parametrize("piece_bytes", [1, 50, 100_000])
def test_an_offer_to_upgrade_is_passed_over(
    upgrade: bytes, chunked: bool, size_bytes: int, piece_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Java's client makes one with every request over plain HTTP, bodies and all."""
    received: list[bytes] = []

    async def note(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
        received.append(body)
        await greet(scope, receive, send)

    async def scenario() -> None:
        protocol, transport = connect(app=note)
        body = b"x" * size_bytes
        head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: %b\r\n" % upgrade
        head += b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"Content-Length: %d\r\n\r\n" % size_bytes
        framed = (b"%x\r\n%b\r\n" % (size_bytes, body) if body else b"") + b"0\r\n\r\n" if chunked else body
        sent = head + framed + head + framed + REQUEST  # pipelined, and the connection goes on as it was
        for start in range(0, len(sent), piece_bytes):
            protocol.data_received(sent[start : start + piece_bytes])
        await until(lambda: transport.written.count(b"200 OK") == 3)
        assert received == [body, body, b""]
        transport.close()

    run(scenario())
    assert caplog.records == []


def test_a_body_that_is_none_is_refused_after_an_offer_to_upgrade_too() -> None:
    async def scenario() -> None:
        protocol, transport = connect()
        head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
        protocol.data_received(head + b"Transfer-Encoding: chunked\r\n\r\nno length\r\n")
        assert (transport.status, transport.error_code) == (400, "invalid_value")
        transport.close()

    run(scenario())


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"gzip", b"identity"])
def test_a_coding_that_is_not_understood_is_refused(coding: bytes) -> None:
    async def scenario() -> None:
        protocol, transport = connect()
        protocol.data_received(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: %b\r\n\r\n2\r\n{}\r\n0\r\n\r\n" % coding
        )
        assert (transport.status, transport.error_code) == (501, "invalid_value")
        transport.close()

    run(scenario())


def test_the_name_of_a_coding_is_read_in_any_case() -> None:
    async def scenario() -> None:
        protocol, transport = connect()
        protocol.data_received(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:  Chunked \r\n\r\n2\r\n{}\r\n0\r\n\r\n"
        )
        await until(lambda: b"200 OK" in transport.written)
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
        counts = ConnectionCounts(connections_max=2, per_address_max=2)
        _, first = connect(counts)
        _, second = connect(counts, address="192.0.2.2")
        _, third = connect(counts, address="192.0.2.3")
        assert (third.status, third.error_code, third.closed) == (503, "server_busy", True)
        assert b"retry-after: 1" in third.written
        assert not (first.closed)
        assert not (second.closed)
        first.close()
        await settle()
        _, fourth = connect(counts, address="192.0.2.3")
        assert not fourth.closed
        for transport in (second, fourth):
            transport.close()

    run(scenario())


def test_one_address_cannot_take_all_connections() -> None:
    async def scenario() -> None:
        counts = ConnectionCounts(connections_max=100, per_address_max=2)
        held = [connect(counts)[1] for _ in range(4)]
        assert [transport.closed for transport in held] == [False, False, True, True]
        _, other = connect(counts, address="192.0.2.2")
        assert not other.closed
        await settle()
        held[0].close()
        await settle()
        _, again = connect(counts)
        assert not again.closed
        for transport in (held[1], other, again):
            transport.close()
        await settle()
        assert counts._count == 0
        assert not counts._of_address

    run(scenario())


class Gated:
    """An application that answers when it is told to, in a body of known length or in chunks."""

    def __init__(self, *, chunked: bool) -> None:
        self.chunked = chunked
        self.gate = asyncio.Event()
        self.started = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        self.started += 1
        headers = [] if self.chunked else [(b"content-length", b"2")]
        if self.chunked:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"h", "more_body": True})
            await self.gate.wait()
            await send({"type": "http.response.body", "body": b"i" * 17, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        else:
            await self.gate.wait()
            await greet(scope, receive, send)


def answers_in(written: bytes) -> list[tuple[int, bytes]]:
    """What a strict client makes of the bytes: status and body of every answer that is not interim."""
    client = h11.Connection(h11.CLIENT)
    answers: list[tuple[int, bytes]] = []
    client.receive_data(written)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    client.send(h11.EndOfMessage())
    while (event := client.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
        match event:
            case h11.Response():
                answers.append((event.status_code, b""))
            case h11.Data():
                answers[-1] = (answers[-1][0], answers[-1][1] + bytes(event.data))
            case h11.EndOfMessage() if client.their_state is h11.DONE:
                client.start_next_cycle()
                client.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
                client.send(h11.EndOfMessage())
    return answers


@pytest.mark.parametrize(("chunked", "body"), [(False, b"hi"), (True, b"h" + b"i" * 17)])
def test_a_client_that_sends_no_more_gets_its_answer(
    chunked: bool, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FIRST_PROBE_SECONDS", 0.001)
    monkeypatch.setattr(limits, "FURTHER_PROBE_SECONDS", 0.001)

    async def scenario() -> None:
        app = Gated(chunked=chunked)
        protocol, transport = connect(app=app)
        protocol.data_received(REQUEST)
        await until(lambda: app.started == 1)
        await settle()
        assert protocol.eof_received() is True
        probed = transport.written
        assert probed.endswith(b"h\r\n0" if chunked else b"100 Continue\r\n\r\n")
        await until(lambda: len(transport.written) > len(probed))  # a second probe, to hear of the first
        app.gate.set()
        await until(lambda: transport.closed)
        assert answers_in(transport.written) == [(200, body)]

    run(scenario())


def test_pipelined_requests_are_all_answered_to_a_client_that_sends_no_more() -> None:
    async def scenario() -> None:
        app = Gated(chunked=True)
        protocol, transport = connect(app=app)
        protocol.data_received(REQUEST * 2)
        await until(lambda: app.started == 1)
        await settle()
        assert protocol.eof_received() is True
        app.gate.set()
        await until(lambda: transport.closed)
        assert [status for status, _ in answers_in(transport.written)] == [200, 200]

    run(scenario())


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHo",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf",
        b"GET / HTTP/1.0\r\n\r\n",
    ],
    ids=["nothing", "half a head", "half a body", "HTTP/1.0"],
)
def test_without_a_whole_request_of_http_1_1_the_end_of_what_is_sent_is_the_end(sent: bytes) -> None:
    async def scenario() -> None:
        app = Gated(chunked=False)
        protocol, transport = connect(app=app)
        if sent:
            protocol.data_received(sent)
        await settle()
        assert protocol.eof_received() is False
        assert transport.written == b""
        app.gate.set()
        transport.close()

    run(scenario())


def test_an_answered_connection_ends_with_what_is_sent() -> None:
    async def scenario() -> None:
        protocol, transport = connect()
        protocol.data_received(REQUEST)
        await until(lambda: b"hi" in transport.written)
        await settle()
        assert protocol.eof_received() is False
        transport.close()

    run(scenario())
