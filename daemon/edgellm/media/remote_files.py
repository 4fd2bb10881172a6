"""Media of other hosts: fetched by this server only where its operator allows it, and from nowhere a client chooses.

One expression takes a URL apart, and what it gives is what is checked and what is connected to. A name is resolved
once; the connection goes to the address that was checked. Nothing that the other side says leads anywhere else.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import re
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from edgellm.errors import MediaAccessError, RequestError
from edgellm.media.media_file import MediaFile

ANY_HOST: Final = "*"
URL_CHARACTERS_MAX: Final = 4096
HEAD_BYTES_MAX: Final = 32 * 2**10

_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>/[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]*)?",
    re.IGNORECASE,
)
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER: Final = re.compile(r"0x[0-9a-f]*|[0-9]+")
_PORT_OF_SCHEME: Final = {"http": 80, "https": 443}
_READ_BYTES: Final = 64 * 2**10
_OK: Final = 200
_INTERIM: Final = range(100, 200)
_REDIRECTS: Final = range(300, 400)
_WITHOUT_ROOM: Final = frozenset({errno.ENOMEM, errno.ENOSPC, errno.EMFILE, errno.ENFILE})  # of this machine
# Addresses that carry one of the older protocol in them: what they lead to is what that one says.
_WITH_IPV4_INSIDE: Final = tuple(
    (ipaddress.IPv6Network(network), shift) for network, shift in (("64:ff9b::/96", 0), ("2002::/16", 80))
)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class RemoteUrl:
    """``host`` is a name in lower case, or an address; ``listed`` says that the operator allows exactly this one."""

    scheme: str
    host: str
    port: int
    target: str
    address: Address | None
    listed: bool

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORT_OF_SCHEME[self.scheme] else f"{host}:{self.port}"


def remote_url(text: str, allowed_hosts: Sequence[str], field: str) -> RemoteUrl:
    """Raises MediaAccessError for a host that is not allowed, RequestError for what is no plain URL.

    ``allowed_hosts`` are names, or addresses with their ports where those are not the usual ones; ANY_HOST stands for
    every public one.
    """
    if not allowed_hosts:
        raise MediaAccessError(
            f"{field}: this server fetches no media from other hosts; send the content as a data URL.", param=field
        )
    match = _URL.fullmatch(text) if len(text) <= URL_CHARACTERS_MAX else None
    if match is None:
        raise RequestError(f"{field} must be a plain http or https URL of ASCII characters, without user.", param=field)
    scheme, host = match["scheme"].lower(), match["host"].lower().strip("[]")
    port = int(match["port"] or _PORT_OF_SCHEME[scheme])
    address = _address_in(host)
    if address is None and not _is_name(host):
        raise RequestError(f"{field} must have a host that is a name or a plain address.", param=field)
    url = RemoteUrl(scheme, host, port, match["target"] or "/", address, listed=False)
    if url.authority in allowed_hosts or (url.host in allowed_hosts and port == _PORT_OF_SCHEME[scheme]):
        return RemoteUrl(scheme, host, port, url.target, address, listed=True)
    if ANY_HOST not in allowed_hosts or port not in _PORT_OF_SCHEME.values():
        raise MediaAccessError(f"{field}: this server fetches no media from that host and port.", param=field)
    return url


def is_public(address: Address) -> bool:
    """Whether it belongs to the internet at large, also where an address of the older protocol is inside of it."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address.teredo is not None:
            return False
        for network, shift in _WITH_IPV4_INSIDE:
            if address in network:
                return is_public(ipaddress.IPv4Address(int(address) >> shift & 0xFFFFFFFF))
    return address.is_global and not address.is_multicast


async def fetch(url: RemoteUrl, bytes_max: int, seconds_max: float, field: str) -> MediaFile:
    """What is there, in a file of the caller's. Raises RequestError, OSError where the machine has no memory for it."""
    answer = _Answer(bytes_max, field)
    try:
        async with asyncio.timeout(seconds_max):
            address = await _checked_address(url, field)
            await _get(url, address, answer)
    except TimeoutError:
        answer.file.close()
        raise _unfetched(field, f"it did not come within {seconds_max:g} s") from None
    except (OSError, EOFError) as error:
        answer.file.close()
        if isinstance(error, OSError) and error.errno in _WITHOUT_ROOM and not isinstance(error, socket.gaierror):
            raise
        raise _unfetched(field, "the connection failed") from None
    except BaseException:
        answer.file.close()
        raise
    return answer.file


async def _checked_address(url: RemoteUrl, field: str) -> Address:
    """The address that is connected to. Of a name all addresses must be public, whatever the operator allows: who
    answers for a name may change what it means.
    """
    if url.address is not None:
        addresses = [url.address]
    else:
        found = await asyncio.get_running_loop().getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
    of_the_operator = url.listed and url.address is not None
    if not addresses or not (of_the_operator or all(is_public(address) for address in addresses)):
        raise MediaAccessError(f"{field}: this server fetches no media from that host and port.", param=field)
    return addresses[0]


async def _get(url: RemoteUrl, address: Address, answer: _Answer) -> None:
    context = _tls_context() if url.scheme == "https" else None
    reader, writer = await asyncio.open_connection(
        str(address), url.port, ssl=context, server_hostname=url.host if context else None
    )
    try:
        head = (
            f"GET {url.target} HTTP/1.1\r\nHost: {url.authority}\r\nUser-Agent: edgellm\r\nAccept: */*\r\n"
            "Accept-Encoding: identity\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode("ascii"))
        while not answer.is_whole:
            piece = await reader.read(_READ_BYTES)
            answer.feed(piece)
    finally:
        writer.close()
        with suppress(OSError):
            writer.transport.abort()


class _Answer:
    """What the other side says, as httptools calls it back."""

    def __init__(self, bytes_max: int, field: str) -> None:
        from httptools import HttpResponseParser

        self.file = MediaFile.empty()
        self.is_whole = False
        self._bytes_max = bytes_max
        self._field = field
        self._head_bytes = 0
        self._body_bytes = 0
        self._in_body = False
        self._ends_with_connection = True
        self._refusal: RequestError | None = None
        self._parser: Any = HttpResponseParser(self)

    def feed(self, piece: bytes) -> None:
        """Raises RequestError for an answer that is not taken."""
        from httptools import HttpParserError

        if not piece:
            if not (self._in_body and self._ends_with_connection):
                raise _unfetched(self._field, "the connection failed")
            self.is_whole = True
            return
        try:
            self._parser.feed_data(piece)
        except HttpParserError as error:
            if isinstance(error.__context__, (RequestError, OSError)):
                raise error.__context__ from None
            raise _unfetched(self._field, "the answer is no HTTP") from None
        if self._refusal is not None:
            raise self._refusal
        if not self._in_body:
            self._head_bytes += len(piece)
            if self._head_bytes > HEAD_BYTES_MAX:
                raise _unfetched(self._field, "the answer has too many headers")

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"content-length":
                self._ends_with_connection = False
                if not value.isdigit() or int(value) > self._bytes_max:
                    self._refuse(f"it has more than {self._bytes_max} bytes")
            case b"transfer-encoding":
                self._ends_with_connection = False
            case b"content-encoding" if value.lower() != b"identity":
                self._refuse("the answer is compressed")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._in_body = status not in _INTERIM
        if not self._in_body:
            return
        if status in _REDIRECTS:
            self._refuse("redirects are not followed")
        elif status != _OK:
            self._refuse(f"the answer has status {status}")

    def on_body(self, piece: bytes) -> None:
        self._body_bytes += len(piece)
        if self._body_bytes > self._bytes_max:
            self._refuse(f"it has more than {self._bytes_max} bytes")
        if self._refusal is None:
            self.file.append(piece)

    def on_message_complete(self) -> None:
        self.is_whole = self._in_body

    def _refuse(self, reason: str) -> None:
        self._refusal = self._refusal or _unfetched(self._field, reason)


def _unfetched(field: str, reason: str) -> RequestError:
    return RequestError(f"{field} could not be fetched: {reason}.", param=field)


def _address_in(host: str) -> Address | None:
    """None for a name, and for an address in any other than its plain form."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_name(host: str) -> bool:
    """Not what other parsers would take for an address: numbers of any base at its end."""
    labels = host.split(".")
    return all(_LABEL.fullmatch(label) for label in labels) and not _NUMBER.fullmatch(labels[-1])


@cache
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()
