"""BoundedHttpProtocol: one HTTP/1.1 connection whose headers, idleness and unread answers are bounded."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from edgellm.api import limits
from edgellm.api.body_writer import EXTENSION, WRITER, TextFrame
from edgellm.api.connection_counts import ConnectionCounts
from edgellm.api.error_body import error_body
from edgellm.api.settings import ServerSettings

_FRAMING_HEADERS = (b"content-length", b"transfer-encoding")


class BoundedHttpProtocol(HttpToolsProtocol):
    """Memory a connection holds before its request starts is bounded by ``head_bytes_max`` and one read.

    A client that does not read is cut off at the write deadline; its request then sees a disconnect.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        settings: ServerSettings,
        counts: ConnectionCounts,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._settings = settings
        self._counts = counts
        self._head_bytes = 0  # of a head that is not complete
        self._in_head = False
        self._header_bytes = 0  # of the head being parsed
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._refusal: tuple[int, str, str] | None = None
        self._probe_timer: asyncio.TimerHandle | None = None
        self._leading_zeros = 0
        self._goes_on = False  # with the body of a request whose head another parser took

    # Start and end of a connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._counts.opened(self._address):
            self._answer(503, "Too many connections.", "server_busy", retry_after_seconds=1)
            transport.close()
            return
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._counts.closed(self._address)
        self._stop_head_timer()
        self._stop_write_timer()
        if self._probe_timer is not None:
            self._probe_timer.cancel()
        super().connection_lost(exc)

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    # Clients that send no more

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection of a client that has sent a whole request and may still read the answer.

        A client that is gone looks the same until something is sent to it. So it is sent what every client passes
        over, and one that is gone then resets the connection. HTTP/1.0 has nothing of the kind, nor has TLS half a
        connection: there, the end of what is sent is the end.
        """
        cycle = self.cycle
        answering = cycle is not None and not cycle.response_complete and not cycle.more_body
        if not answering or not self.transport.can_write_eof() or cycle.scope["http_version"] != "1.1":
            return False
        cycle.keep_alive = False  # the last request: those that were pipelined before it are answered too
        if self._probe_timer is None:
            self._probe(limits.FIRST_PROBE_SECONDS)
        return True

    def _probe(self, again_seconds: float = limits.FURTHER_PROBE_SECONDS) -> None:
        cycle = self.cycle
        if self.transport.is_closing() or cycle.response_complete:
            return
        if not self.pipeline and not cycle.response_started:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif not self.pipeline and cycle.chunked_encoding and self._leading_zeros < limits.LEADING_ZEROS_MAX:
            self._leading_zeros += 1
            self.transport.write(b"0")  # of the length of the chunk that comes next
        # What answered the first probe, a reset, shows when the next is sent.
        self._probe_timer = self.loop.call_later(again_seconds, self._probe)

    # Heads

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None or self.transport.is_closing():
            return
        if not self._in_head and (self.cycle is None or self.cycle.response_complete):
            self._in_head = True
            self._head_bytes = 0
            self._start_head_timer()
        if self._in_head:
            self._head_bytes += len(data)
        self._feed(data)
        if self._in_head and self._head_bytes > self._settings.head_bytes_max and self._refusal is None:
            self._refuse_head()
            self.send_400_response("")

    def _feed(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                except httptools.HttpParserUpgrade as upgrade:
                    data = data[upgrade.args[0] :]
                    self._pass_over_upgrade()
                else:
                    return
        except httptools.HttpParserError:
            self.send_400_response("")

    def _pass_over_upgrade(self) -> None:
        """An upgrade is an offer that a server need not take: the request is answered as it stands.

        Its parser takes what comes after the head for another protocol, so another one goes on with the body.
        """
        framing = [(name, value) for name, value in self.headers if name in _FRAMING_HEADERS]
        self.parser = httptools.HttpRequestParser(self)
        self._goes_on = True
        try:
            self.parser.feed_data(
                b"POST / HTTP/1.1\r\n" + b"".join(b"%b: %b\r\n" % header for header in framing) + b"\r\n"
            )
        finally:
            self._goes_on = False

    def on_message_begin(self) -> None:
        if not self._goes_on:
            super().on_message_begin()
            self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        if not self._goes_on:
            super().on_url(url)
            self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._goes_on:
            # A target that names its server goes before the header that does (RFC 9112, 3.2.2).
            is_shadowed = name.lower() == b"host" and not self.url.startswith(b"/")
            super().on_header(name, _authority_of(self.url) or value if is_shadowed else value)
            self._count_head(len(name) + len(value))
            if name.lower() == b"transfer-encoding" and value.strip().lower() != b"chunked":
                # The parser would take the body of "gzip, chunked" for one that is not compressed.
                self._refusal = (501, "The server understands no transfer coding but chunked.", "invalid_value")
                raise httptools.HttpParserError("transfer coding")  # _feed answers

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():  # then its body is still to come
            super().on_message_complete()

    def on_headers_complete(self) -> None:
        if self._goes_on:
            return
        self._in_head = False
        self._stop_head_timer()
        super().on_headers_complete()
        # The request's task has not begun yet.
        self.scope["extensions"] = {EXTENSION: {WRITER: ChunkWriter(self.cycle, self.flow, self.transport)}}

    def _count_head(self, count_bytes: int) -> None:
        self._header_bytes += count_bytes
        too_many = len(self.headers) > self._settings.header_count_max
        if too_many or self._header_bytes > self._settings.head_bytes_max:
            self._refuse_head()
            raise httptools.HttpParserError("head too large")  # data_received answers

    def _refuse_head(self) -> None:
        self._refusal = (431, "The request line and headers are larger than the server allows.", "request_too_large")

    def _start_head_timer(self) -> None:
        self._stop_head_timer()
        self._head_timer = self.loop.call_later(self._settings.header_deadline_seconds, self._cut)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    # Answers

    def send_400_response(self, msg: str) -> None:
        """The answer to bytes that are no HTTP request, in the shape of every other error."""
        refusal = self._refusal or (400, "The bytes received are not a valid HTTP/1.1 request.", "invalid_value")
        self._refusal = refusal
        self._answer(*refusal)
        # A connection closed over unread bytes is reset, and the client would never see why: read on for a while.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._head_timer = self.loop.call_later(limits.LINGER_SECONDS, self._cut)

    def _answer(self, status: int, message: str, code: str, retry_after_seconds: int | None = None) -> None:
        body = error_body(status, message, code)
        retry_after = b"" if retry_after_seconds is None else b"retry-after: %d\r\n" % retry_after_seconds
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body)
        self.transport.write(b"".join([STATUS_LINE[status], head, retry_after, b"\r\n", body]))
        self._stop_head_timer()
        self._start_write_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.get_write_buffer_size() > 0:
            self._start_write_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_write_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_timer()

    def _start_write_timer(self) -> None:
        self._stop_write_timer()
        self._write_timer = self.loop.call_later(self._settings.write_deadline_seconds, self._cut_if_unread)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _cut_if_unread(self) -> None:
        if self.transport.get_write_buffer_size() > 0:
            self._cut()

    def _cut(self) -> None:
        self.transport.abort()


def _authority_of(target: bytes) -> bytes:
    """Of a target in absolute form; empty for the other forms."""
    _, separator, rest = target.partition(b"://")
    return re.split(rb"[/?#]", rest, maxsplit=1)[0].rpartition(b"@")[2] if separator else b""


class ChunkWriter:
    """The BodyWriter of one request on a connection: chunked encoding straight to the transport."""

    __slots__ = ("_cycle", "_flow", "_transport")

    def __init__(self, cycle: RequestResponseCycle, flow: FlowControl, transport: asyncio.Transport) -> None:
        self._cycle = cycle
        self._flow = flow
        self._transport = transport

    def can_write(self) -> bool:
        cycle = self._cycle
        if self._flow.write_paused or cycle.disconnected or cycle.response_complete:
            return False
        return bool(cycle.chunked_encoding)

    def write(self, piece: bytes) -> None:
        self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def text_writer(self, frame: TextFrame) -> Callable[[str], bool]:
        cycle, flow, write, middle = self._cycle, self._flow, self._transport.write, frame.middle
        before, after = frame.before, frame.after + b"\r\n"
        fixed_bytes = len(frame.before) + len(frame.after)

        def write_text(text: str) -> bool:
            if flow.write_paused or cycle.disconnected or cycle.response_complete:
                return False
            said = middle(text).encode()
            write(b"%x\r\n%b%b%b" % (fixed_bytes + len(said), before, said, after))
            return True

        return write_text
