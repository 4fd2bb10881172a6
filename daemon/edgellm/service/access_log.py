"""One log line a request: who, which route, what came of it, how long. Never a query, a body or an unknown path."""

from __future__ import annotations

import logging
import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgellm.api.routes import routes_at

# Asked every few seconds by whoever watches: of interest only when something is searched for.
_WATCHED_ROUTES = frozenset({"/health/live", "/health/ready", "/health", "/metrics"})
CLIENT_LEFT = 499  # of nobody's answer: what logs commonly call a client that left before it had one
_SLASHES = re.compile(r"/{2,}")

_log = logging.getLogger(__name__)


class AccessLog:
    """Wraps the application. A request whose client left before its answer began is logged as CLIENT_LEFT.

    Status 0 is one that was broken off: by an error that no answer could be made of, or by the daemon's end.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 0
        state = scope.setdefault("state", {})  # where the application notes the id that an answer would carry

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
            status = status or CLIENT_LEFT
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
                state.get("request_id", ""),
            )
