"""HttpServer: uvicorn with bounds on what a connection may cost, started and stopped by its owner."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import socket
import ssl
from collections.abc import Iterator, Sequence

import uvicorn
from starlette.types import ASGIApp

from edgellm.api.connection import BoundedHttpProtocol
from edgellm.api.connection_counts import ConnectionCounts
from edgellm.api.settings import ServerSettings


class HttpServer(uvicorn.Server):
    """Serves ``app`` on sockets that are bound already. Signals are the owner's: ``stop()`` ends ``run_on()``.

    The owner drains the EngineClient before it calls ``stop()``: until then new requests get their 503.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings | None = None, tls: ssl.SSLContext | None = None) -> None:
        settings = settings or ServerSettings()
        self._tls = tls
        self._handshake_seconds = settings.header_deadline_seconds if tls else None
        counts = ConnectionCounts(settings.connections_max, settings.connections_per_address_max)
        super().__init__(
            uvicorn.Config(
                app,
                http=functools.partial(BoundedHttpProtocol, settings=settings, counts=counts),  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=math.ceil(settings.idle_deadline_seconds),
                timeout_graceful_shutdown=math.ceil(settings.shutdown_grace_seconds),
            )
        )

    async def run_on(self, sockets: Sequence[socket.socket]) -> None:
        await self.serve(sockets=list(sockets))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Takes connections. A client has as long for its TLS handshake as for the headers of a request."""

        def connection() -> asyncio.Protocol:
            made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config, server_state=self.server_state, app_state={}
            )
            return made

        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(
                connection,
                sock=listener,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_seconds,
                backlog=self.config.backlog,
            )
            for listener in sockets or ()
        ]
        self.started = True

    def stop(self) -> None:
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
