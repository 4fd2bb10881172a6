"""Gate: every HTTP request passes here before any route. Plain ASGI, so that a streamed token costs one call."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgellm.api import cors, hosts, limits
from edgellm.api.client_limits import ClientLimits
from edgellm.api.credentials import key_in
from edgellm.api.error_mapping import Headers, HttpError, described, error_response, nothing_at_this_path
from edgellm.api.failure_log import log_failure
from edgellm.api.http_counters import HttpCounters
from edgellm.api.json_body import ClientGoneError, too_large
from edgellm.api.keys import KeyRing
from edgellm.api.media_settings import base64_bytes
from edgellm.api.request_ids import made_request_id, request_id_of
from edgellm.api.routes import Access, Body, Dialect, Route, dialect_at, routes_at
from edgellm.api.settings import ApiSettings, LiveSettings
from edgellm.errors import UnsupportedParameterError
from edgellm.serving.report import Outcome, outcome_of_error

UNRECORDED = "edgellm.unrecorded"
"""In the state of a request's scope: True until serving has it, which counts and records it from then on."""

NoteRefused = Callable[[str, str, str, Outcome, str], None]  # client, request id, route, outcome, error code

_SLASHES = re.compile(r"/{2,}")
_RAW_SLASHES = re.compile(rb"/{2,}")


class Gate:
    """Refuses what no route may see, and gives every answer its request id, its CORS headers and its error shape."""

    def __init__(
        self,
        app: ASGIApp,
        settings: LiveSettings,
        keys: KeyRing,
        counters: HttpCounters,
        note_refused: NoteRefused,
        takes_media: Callable[[], bool],
    ) -> None:
        self._app = app
        self._takes_media = takes_media
        self._live = settings
        self._keys = keys
        self._counters = counters
        self._note_refused = note_refused
        self._limits = ClientLimits(settings.now.requests_per_minute, settings.now.concurrent_requests)
        self._hosts = hosts.KnownHosts(settings.now)
        settings.when_replaced(self._take_on)

    @property
    def _settings(self) -> ApiSettings:
        return self._live.now

    def _take_on(self, new: ApiSettings) -> None:
        self._limits.change(new.requests_per_minute, new.concurrent_requests)
        self._hosts.change(new)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(dict(scope), receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Answer(send, head_only=scope["method"] == "HEAD")
        answer.dialect = dialect_at(_SLASHES.sub("/", scope["path"]))
        headers: Headers = list(scope["headers"])
        outer_state = scope.get("state", {})
        try:
            origin = cors.origin_of(headers)
            answer.extra_headers += cors.answer_headers(origin, self._settings.cors_origins)
            answer.request_id(made_request_id())
            answer.request_id(request_id_of(_values(headers, b"x-request-id")))
            scope["path"] = _SLASHES.sub("/", scope["path"])
            scope["raw_path"] = _RAW_SLASHES.sub(b"/", scope.get("raw_path") or scope["path"].encode())
            await self._pass(scope, headers, origin, receive, answer)
        except ClientGoneError:
            return
        except Exception as error:
            # The last line of defence: whatever a route raises becomes an error object, and the daemon goes on.
            log_failure(answer.id, error)
            if isinstance(error, UnsupportedParameterError):
                self._counters.unsupported_field(error.param or "")
            self._note(scope, error)
            if answer.started:
                raise BrokenAnswerError from None
            await self._refuse(scope, error, receive, answer)
        finally:
            outer_state["request_id"] = answer.id  # for the log: a client that left was sent none
            self._counters.answered(answer.route, answer.status)

    async def _pass(
        self, scope: Scope, headers: Headers, origin: bytes | None, receive: Receive, answer: _Answer
    ) -> None:
        routes = routes_at(scope["path"])
        answer.route = routes[0].path if routes else ""
        if not any(route.any_host for route in routes):
            self._hosts.check(_values(headers, b"host"))
            cors.check_origin(origin, _values(headers, b"host"), self._settings.cors_origins)
        if scope["method"] == "OPTIONS" and routes:
            await answer.whole(204, cors.options_headers(headers, [route.method for route in routes]), b"")
            return
        key = key_in(headers, self._keys) if self._keys.required else None
        is_public = bool(routes) and all(route.access is Access.PUBLIC for route in routes)
        if self._keys.required and key is None and not is_public:
            raise HttpError(401, "A valid API key is needed.", "invalid_api_key", [(b"www-authenticate", b"Bearer")])
        route = _route_for(scope["method"], routes)
        if route.body is Body.JSON:
            bytes_max = self._settings.body_bytes_max
            if route.brings_media and self._takes_media():
                bytes_max += base64_bytes(self._settings.media.request_bytes_max)
            _check_json_headers(headers, bytes_max)
        elif route.body is Body.FORM:
            _check_kind(headers, b"multipart/form-data", "Send the body as multipart/form-data.")
            _check_size(headers, limits.UPLOAD_BYTES_MAX)
        scope["method"] = route.method  # HEAD is answered as GET
        peer = scope.get("client")
        scope["state"] = {
            **scope.get("state", {}),
            "request_id": answer.id,
            "client": key.name if key else (peer[0] if peer else ""),
            "priority": key.priority if key else None,
            "cache_domain": key.name if key and self._keys.has_had_several_clients else "",
            "route": route.path,
            UNRECORDED: route.generates,
        }
        if route.body is Body.NONE:
            await self._app(scope, receive, answer.send)
            return
        with self._limits.request(scope["state"]["client"]):
            await self._app(scope, receive, answer.send)

    def _note(self, scope: Scope, error: Exception) -> None:
        """A known client's request for an answer that no model has heard of; of others serving says it itself."""
        state = scope.get("state", {})
        if state.get(UNRECORDED):
            _, _, code, _ = described(error)
            outcome = Outcome.REFUSED if isinstance(error, HttpError) else outcome_of_error(error)
            self._note_refused(state["client"], state["request_id"], state["route"], outcome, code)

    async def _refuse(self, scope: Scope, error: Exception, receive: Receive, answer: _Answer) -> None:
        status, headers, body = error_response(error, answer.dialect, answer.id)
        unread = (b"connection", b"close") in headers
        await answer.send({"type": "http.response.start", "status": status, "headers": headers})
        await answer.send({"type": "http.response.body", "body": body, "more_body": unread})
        if unread:
            # A connection closed over unread bytes is reset, and the client would never see the answer.
            await _discard(receive, self._settings.body_bytes_max)
            await answer.send({"type": "http.response.body", "body": b"", "more_body": False})


class BrokenAnswerError(Exception):
    """An answer that had begun cannot be completed; the server closes the connection."""


class _Answer:
    """What goes back: knows its status and whether it has begun."""

    def __init__(self, send: Send, head_only: bool) -> None:
        self._send = send
        self._head_only = head_only
        self.extra_headers: Headers = [(b"x-content-type-options", b"nosniff")]
        self.id = ""
        self.dialect = Dialect.OPENAI
        self.route = ""
        self.status = 0  # none yet

    @property
    def started(self) -> bool:
        return self.status != 0

    def request_id(self, request_id: str) -> None:
        self.id = request_id

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            request_id = self.id.encode("ascii")
            headers = [*message["headers"], (b"x-request-id", request_id), *self.extra_headers]
            if self.dialect is Dialect.ANTHROPIC:
                headers.append((b"request-id", request_id))
            message = {**message, "headers": headers}
        elif self._head_only:
            message = {**message, "body": b""}
        await self._send(message)

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})


def _values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]


def _route_for(method: str, routes: list[Route]) -> Route:
    if not routes:
        raise nothing_at_this_path()
    wanted = "GET" if method == "HEAD" else method
    for route in routes:
        if route.method == wanted:
            return route
    allowed = cors.methods_of([route.method for route in routes])
    raise HttpError(405, f"This path takes {allowed}.", "method_not_allowed", [(b"allow", allowed.encode())])


def _check_json_headers(headers: Headers, size_bytes_max: int) -> None:
    how = "Send the body as Content-Type: application/json, in UTF-8."
    charset = _check_kind(headers, b"application/json", how).removeprefix(b"charset=").strip(b'"')
    if charset not in (b"", b"utf-8"):
        raise HttpError(415, how, "unsupported_media_type")
    _check_size(headers, size_bytes_max)


def _check_kind(headers: Headers, wanted: bytes, how: str) -> bytes:
    """The content type's parameters. Raises HttpError, also for a content encoding."""
    kinds = _values(headers, b"content-type")
    kind, _, parameters = (kinds[0] if len(kinds) == 1 else b"").lower().partition(b";")
    if kind.strip() != wanted:
        raise HttpError(415, how, "unsupported_media_type")
    if any(value.lower() != b"identity" for value in _values(headers, b"content-encoding")):
        raise HttpError(415, "Send the body without a Content-Encoding.", "unsupported_media_type")
    return parameters.strip()


def _check_size(headers: Headers, size_bytes_max: int) -> None:
    lengths = _values(headers, b"content-length")
    if not lengths and not _values(headers, b"transfer-encoding"):
        raise HttpError(411, "Send a body, with its Content-Length or in chunks.", "length_required")
    if lengths and lengths[0].isdigit() and int(lengths[0]) > size_bytes_max:
        raise too_large(size_bytes_max)


async def _discard(receive: Receive, bytes_max: int) -> None:
    discarded = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limits.LINGER_SECONDS):
            while discarded < bytes_max:
                message = await receive()
                discarded += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
