"""One connection of the server without a socket: what comes in is given to its protocol, what goes out is kept."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from edgellm.api.connection import BoundedHttpProtocol
from edgellm.api.connection_counts import ConnectionCounts
from edgellm.api.settings import ServerSettings


class MemoryTransport(asyncio.Transport):
    """Keeps what is written; a client that does not read leaves it in the buffer."""

    def __init__(self, address: str = "192.0.2.1") -> None:
        super().__init__()
        self._address = address
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
        return (self._address, 50_000) if name == "peername" else default

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
    counts: ConnectionCounts | None = None, app: Any = greet, address: str = "192.0.2.1", **settings: Any
) -> tuple[BoundedHttpProtocol, MemoryTransport]:
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none", proxy_headers=False)
    bounds = ServerSettings(**settings)
    counts = counts or ConnectionCounts(bounds.connections_max, bounds.connections_per_address_max)
    protocol = BoundedHttpProtocol(config, ServerState(), {}, settings=bounds, counts=counts)
    transport = MemoryTransport(address)
    transport.protocol = protocol
    protocol.connection_made(transport)
    return protocol, transport
