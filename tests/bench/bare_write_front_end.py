"""The floor: a loop that is woken for each step and writes bytes that were made before, and does nothing else.

What a chunk costs here is the price of waking a process, one read and one write: no front end can be below it.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from pathlib import Path
from typing import cast

import uvloop
from tests.bench.synthetic_source import TEXT, SyntheticSource, obey

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
EVENT = (
    b'data: {"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"synthetic","choices":[{"index":0,"delta":{"content":"%b"},"logprobs":null,"finish_reason":null}]}\n\n'
    % TEXT.encode()
)
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
LAST_CHUNK = b"0\r\n\r\n"


class Connections:
    """The open answers, as the outlets of the source."""

    source: SyntheticSource

    def __init__(self) -> None:
        self._transports: list[asyncio.Transport] = []

    def open(self, transport: asyncio.Transport) -> None:
        transport.write(HEAD)
        self._transports.append(transport)

    @property
    def open_streams(self) -> int:
        return len(self._transports)

    def give(self, text: str) -> None:
        for transport in self._transports:
            transport.write(CHUNK)
            self.source.took_chunk()

    def end(self) -> None:
        for transport in self._transports:
            transport.write(LAST_CHUNK)
            transport.close()
        self._transports = []


class Answer(asyncio.Protocol):
    """Any request is answered as soon as its first bytes are here: the benchmark's are small enough for one read."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._is_open:
            self._is_open = True
            self._connections.open(self._transport)


async def serve(pipe: Path) -> None:
    connections = Connections()
    source = connections.source = SyntheticSource(pipe, connections)
    loop = asyncio.get_running_loop()
    loop.add_reader(source.descriptor, source.read_pipe)
    stopped = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = await loop.create_server(lambda: Answer(connections), sock=listener)
        threading.Thread(target=obey, args=(source, port, loop.call_soon_threadsafe, stopped.set), daemon=True).start()
        await stopped.wait()
        server.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Path(sys.argv[1])))
