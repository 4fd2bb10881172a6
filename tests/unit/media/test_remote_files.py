"""Media of other hosts: what is never connected to, and what of an answer is taken."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from edgellm.errors import MediaAccessError, RequestError
from edgellm.media.remote_files import fetch, is_public, remote_url

ANY = ("*",)
FIELD = "messages[0].content[0].image_url.url"


def test_nothing_is_fetched_unless_the_operator_allows_it() -> None:
    with pytest.raises(MediaAccessError, match="fetches no media from other hosts") as refused:
        remote_url("https://example.com/a.png", (), FIELD)
    assert refused.value.param == FIELD


@pytest.mark.parametrize(
    "text",
    [
        "https://example.com\\@127.0.0.1/a.png",
        "https://user@example.com/a.png",
        "https://user:word@example.com/",
        "https://@example.com/",
        "https://example.com:/..\\..",
        "https://exam ple.com/",
        "https://example.com/a#b",
        "https://example.com/\r\nHost: other",
        "https://example.com:99999999/",
        "https://ex\u00e4mple.com/",
        "https://example\u3002com/",
        "https://example..com/",
        "https://.example.com/",
        "https://example.com./",
        "https://-example.com/",
        "https:/example.com/",
        "https:///example.com/",
        "https://",
        "https://[::1",
        "https://[fe80::1%25eth0]/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0x7f.1/",
        "https://0177.0.0.1/",
        "https://127.1/",
        "https://127.0.0.1.0/",
        "https://1.2.3.04/",
        "https://example.com/" + "a" * 5000,
    ],
)
def test_what_two_parsers_could_read_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(RequestError):
        remote_url(text, ANY, FIELD)


@pytest.mark.parametrize("port", [22, 25, 6379, 8080, 65535])
def test_other_ports_are_for_the_operator_to_name(port: int) -> None:
    with pytest.raises(MediaAccessError):
        remote_url(f"http://example.com:{port}/", ANY, FIELD)
    assert remote_url(f"http://example.com:{port}/", (f"example.com:{port}",), FIELD).port == port


def test_a_host_that_is_not_listed_is_refused() -> None:
    for text in ("https://example.org/", "https://example.com.evil.org/", "https://sub.example.com/"):
        with pytest.raises(MediaAccessError):
            remote_url(text, ("example.com",), FIELD)
    url = remote_url("HTTPS://Example.com/Path?q=1&r=%20", ("example.com",), FIELD)
    assert (url.host, url.port, url.target, url.authority) == ("example.com", 443, "/Path?q=1&r=%20", "example.com")


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
        *("192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001::1"),
    ],
)
def test_addresses_that_are_not_of_the_internet_at_large_are_not_public(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_addresses_of_the_internet_are(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "169.254.169.254", "localhost", "[::ffff:127.0.0.1]"])
def test_a_private_address_is_never_connected_to(host: str) -> None:
    url = remote_url(f"http://{host}/", ANY, FIELD)
    with pytest.raises(MediaAccessError):
        asyncio.run(fetch(url, 100, 5.0, FIELD))


def test_a_listed_name_must_still_mean_a_public_address() -> None:
    url = remote_url("http://localhost/", ("localhost",), FIELD)
    assert url.listed
    with pytest.raises(MediaAccessError):
        asyncio.run(fetch(url, 100, 5.0, FIELD))


# An address that the operator names may be one of the own network: so these run against a server of this machine.

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server_that(serve: Serve) -> AsyncIterator[int]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def fetched(answer: bytes, *, bytes_max: int = 100, seconds_max: float = 10.0, keeps_open: bool = False) -> bytes:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        if keeps_open:
            await reader.read()

    async def run() -> bytes:
        async with server_that(serve) as port:
            url = remote_url(f"http://127.0.0.1:{port}/a.png?b=1", (f"127.0.0.1:{port}",), FIELD)
            file = await fetch(url, bytes_max, seconds_max, FIELD)
            head = asked[0].decode().splitlines()
            assert head[0] == "GET /a.png?b=1 HTTP/1.1"
            assert f"Host: 127.0.0.1:{port}" in head
            assert not any(line.lower().startswith(("cookie", "authorization")) for line in head)
            with file.reader() as stream:
                return stream.read()

    return asyncio.run(run())


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 5\r\n\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nhello",
    ],
)
def test_an_answer_is_taken_in_any_framing(answer: bytes) -> None:
    assert fetched(answer) == b"hello"


def test_an_answer_at_the_limit_is_taken_and_one_beyond_is_not() -> None:
    assert fetched(OK + b"Content-Length: 5\r\n\r\nhello", bytes_max=5) == b"hello"
    for answer in (
        OK + b"Content-Length: 5\r\n\r\nhello",
        OK + b"Content-Length: 9000000000\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
    ):
        with pytest.raises(RequestError, match="more than 4 bytes"):
            fetched(answer, bytes_max=4)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            b"HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n",
            "redirects are not followed",
        ),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "status 404"),
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab", "compressed"),
        (OK + b"Content-Length: 5\r\n\r\nhel", "connection failed"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "no HTTP"),
        (b"", "connection failed"),
        (OK + b"X: " + b"a" * 70_000, "too many headers|no HTTP"),
    ],
)
def test_other_answers_are_not_taken(answer: bytes, reason: str) -> None:
    with pytest.raises(RequestError, match=reason) as refused:
        fetched(answer)
    assert refused.value.param == FIELD


def test_one_who_answers_slowly_is_not_waited_for() -> None:
    with pytest.raises(RequestError, match=r"did not come within 0\.2 s"):
        fetched(OK + b"Content-Length: 5\r\n\r\nhel", seconds_max=0.2, keeps_open=True)


def test_a_port_that_nobody_listens_at_is_a_failed_connection() -> None:
    url = remote_url("http://127.0.0.1:9/", ("127.0.0.1:9",), FIELD)
    with pytest.raises(RequestError, match="connection failed"):
        asyncio.run(fetch(url, 100, 5.0, FIELD))


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        *((number, RequestError) for number in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT)),
        *((number, OSError) for number in (errno.ENOMEM, errno.EMFILE)),
    ],
)
def test_a_host_that_is_off_is_no_lack_of_this_machine(
    number: int, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(*_: object, **__: object) -> None:
        raise OSError(number, "as the system says")

    monkeypatch.setattr(asyncio, "open_connection", connect)
    with pytest.raises(expected):
        asyncio.run(fetch(remote_url("http://127.0.0.1:9/", ("127.0.0.1:9",), FIELD), 100, 5.0, FIELD))


def test_a_name_is_resolved_once_and_the_connection_goes_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the name looked up again when the connection is made, it could mean another address by then."""
    asked: list[object] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        looks_up = loop.getaddrinfo

        async def getaddrinfo(host: object, *arguments: object, **options: object) -> object:
            asked.append(host)
            if host == "pinned.example":
                return [(2, 1, 6, "", ("203.0.114.7", 80))]
            return await looks_up(host, *arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        connected: list[str] = []

        async def connect(host: str, port: int, **_: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            connected.append(host)
            raise ConnectionRefusedError

        monkeypatch.setattr(asyncio, "open_connection", connect)
        with pytest.raises(RequestError, match="connection failed"):
            await fetch(remote_url("http://pinned.example/", ANY, FIELD), 100, 5.0, FIELD)
        assert connected == ["203.0.114.7"]

    asyncio.run(run())
    assert asked == ["pinned.example"]
