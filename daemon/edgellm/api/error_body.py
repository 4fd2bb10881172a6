"""The OpenAI error object: one shape for every refusal and failure, whatever finds it."""

from __future__ import annotations

import json

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}


def error_object(status: int, message: str, code: str | None, param: str | None = None) -> dict[str, object]:
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_body(status: int, message: str, code: str | None, param: str | None = None) -> bytes:
    return json.dumps(error_object(status, message, code, param), ensure_ascii=False).encode()
