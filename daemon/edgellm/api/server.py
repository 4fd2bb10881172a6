"""HttpServer: uvicorn with bounds on what a connection may cost, started and stopped by its owner."""

from __future__ import annotations

import contextlib
import functools
import math
import socket
from collections.abc import Iterator, Sequence

import uvicorn
from starlette.types import ASGIApp

from edgellm.api.connection import BoundedHttpProtocol
from edgellm.api.settings import ServerSettings


class HttpServer(uvicorn.Server):
    """Serves ``app`` on sockets that are bound already. Signals are the owner's: ``stop()`` ends ``run_on()``.

    The owner drains the EngineClient before it calls ``stop()``: until then new requests get their 503.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings | None = None) -> None:
        settings = settings or ServerSettings()
        super().__init__(
            uvicorn.Config(
                app,
                http=functools.partial(BoundedHttpProtocol, settings=settings),  # type: ignore[arg-type]
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

    def stop(self) -> None:
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
