"""CORS by allow-list, and the Origin check that keeps other web pages out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgellm.api.error_mapping import Headers, HttpError

_EXPOSED = b"x-request-id, request-id, retry-after, x-edgellm-streaming"
_PREFLIGHT_SECONDS = 600
_HEADER_NAMES = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, \t-]{0,4096}")


def origin_of(headers: Headers) -> bytes | None:
    return next((value for name, value in headers if name == b"origin"), None)


def _allowed(origin: bytes, allowed_origins: Sequence[str]) -> bool:
    return "*" in allowed_origins or origin.decode("latin-1").lower() in (o.lower() for o in allowed_origins)


def check_origin(origin: bytes | None, hosts: Sequence[bytes], allowed_origins: Sequence[str]) -> None:
    """Raises HttpError for a page of another site that the operator did not allow."""
    if origin is None or _allowed(origin, allowed_origins):
        return
    own = hosts[0].lower() if hosts else b""
    if origin.lower() in (b"http://" + own, b"https://" + own):
        return
    raise HttpError(403, "This origin may not call the server; the operator can allow it.", "not_allowed")


def answer_headers(origin: bytes | None, allowed_origins: Sequence[str]) -> Headers:
    """On every answer, refusals included: without them a page cannot read why it was refused."""
    if not allowed_origins:
        return []
    vary = (b"vary", b"Origin")
    if origin is None or not _allowed(origin, allowed_origins):
        return [vary]
    return [vary, (b"access-control-allow-origin", origin), (b"access-control-expose-headers", _EXPOSED)]


def methods_of(methods: Sequence[str]) -> str:
    return ", ".join(sorted({*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])}))


def options_headers(headers: Headers, methods: Sequence[str]) -> Headers:
    """What OPTIONS says; to a browser's preflight also what its page may send.

    The origin was checked before; which headers a page of an allowed origin sends is not restricted.
    """
    allowed = methods_of(methods).encode()
    asked = {name: value for name, value in headers if name.startswith(b"access-control-request-")}
    if origin_of(headers) is None or b"access-control-request-method" not in asked:
        return [(b"allow", allowed)]
    answer = [
        (b"access-control-allow-methods", allowed),
        (b"access-control-max-age", b"%d" % _PREFLIGHT_SECONDS),
    ]
    names = asked.get(b"access-control-request-headers", b"")
    if names and _HEADER_NAMES.fullmatch(names):
        answer.append((b"access-control-allow-headers", names))
    return answer
