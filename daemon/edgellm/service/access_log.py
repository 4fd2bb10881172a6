"""One log line a request: who, which route, what came of it, how long. Never a query, a body or an unknown path."""

from __future__ import annotations

import logging
import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgellm.api.routes import routes_at

# Asked every few seconds by whoever watches: of interest only when something is searched for.
_WATCHED_ROUTES = frozenset({"/health/live", "/health/ready", "/health", "/metrics"})
_SLASHES = re.compile(r"/{2,}")

_log = logging.getLogger(__name__)


class AccessLog:
    """Wraps the application. A request that is not answered (the client left) is logged with status 0."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 0
        request_id = ""

        async def noting(message: Message) -> None:
            nonlocal status, request_id
            if message["type"] == "http.response.start":
                status = message["status"]
                request_id = next((v.decode("latin-1") for k, v in message["headers"] if k == b"x-request-id"), "")
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            routes = routes_at(_SLASHES.sub("/", scope["path"]))
            path = routes[0].path if routes else "(no route)"
            level = logging.DEBUG if path in _WATCHED_ROUTES and status < 400 else logging.INFO
            peer = scope.get("client")
            _log.log(
                level,
                "%s %s %s %d %.3f s %s",
                peer[0] if peer else "-",
                scope["method"] if scope["method"].isalpha() else "-",
                path,
                status,
                time.monotonic() - began,
                request_id,
            )
