"""The Anthropic error object: the same causes as everywhere, in the words of that protocol."""

from __future__ import annotations

import json
from typing import Any

THREAD_FIELD = "thread"
_NO_THREADS = "thread_unsupported_request"  # makes the official clients send the whole conversation instead

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def anthropic_error_object(
    status: int, message: str, code: str | None, param: str | None, request_id: str
) -> dict[str, Any]:
    """``details`` has the code and the field that other protocols have beside the message."""
    kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    text = message if param is None or param in message else f"{param}: {message}"
    details: dict[str, Any] = {"error_code": code, "param": param}
    if param == THREAD_FIELD:
        details.update(error_code=_NO_THREADS, unsupported=[])
    return {"type": "error", "error": {"type": kind, "message": text, "details": details}, "request_id": request_id}


def anthropic_error_body(status: int, message: str, code: str | None, param: str | None, request_id: str) -> bytes:
    return json.dumps(anthropic_error_object(status, message, code, param, request_id), ensure_ascii=False).encode()
