"""The Anthropic error object: the same causes as everywhere, in the words of that protocol."""

from __future__ import annotations

import json

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def anthropic_error_object(status: int, message: str, param: str | None, request_id: str) -> dict[str, object]:
    """The protocol has no field for ``param``: a message that does not name it is told to."""
    kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    text = message if param is None or param in message else f"{param}: {message}"
    return {"type": "error", "error": {"type": kind, "message": text}, "request_id": request_id}


def anthropic_error_body(status: int, message: str, param: str | None, request_id: str) -> bytes:
    return json.dumps(anthropic_error_object(status, message, param, request_id), ensure_ascii=False).encode()
