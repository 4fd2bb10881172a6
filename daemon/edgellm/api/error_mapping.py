"""What an error of edgellm is in HTTP: status, headers and the error object."""

from __future__ import annotations

import math

from edgellm.api.anthropic_errors import anthropic_error_body
from edgellm.api.error_body import error_body, error_object
from edgellm.api.routes import Dialect
from edgellm.errors import (
    AdmissionError,
    DuplicateRequestIdError,
    EdgeLLMError,
    KeyRevokedError,
    MediaAccessError,
    ModelNotFoundError,
    PairingClosedError,
    PairingRefusedError,
    RateLimitedError,
    RecordNotFoundError,
    RequestCancelledError,
    RequestError,
    RequestTimeoutError,
    ServerBusyError,
    StoredResponseNotFoundError,
    WorkerFailedError,
)

Headers = list[tuple[bytes, bytes]]


class HttpError(EdgeLLMError):
    """A refusal that only HTTP knows: wrong path, method, media type, size, key, host or origin."""

    def __init__(self, status: int, message: str, error_code: str, headers: Headers | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.error_code = error_code
        self.headers = headers or []


def nothing_at_this_path() -> HttpError:
    return HttpError(404, "There is nothing at this path.", "not_found")


_STATUS_OF: tuple[tuple[type[EdgeLLMError], int], ...] = (
    (ModelNotFoundError, 404),
    (StoredResponseNotFoundError, 404),
    (RecordNotFoundError, 404),
    (DuplicateRequestIdError, 409),
    (MediaAccessError, 403),
    (RequestError, 400),
    (ServerBusyError, 429),
    (RateLimitedError, 429),
    (KeyRevokedError, 401),
    (PairingClosedError, 404),
    (PairingRefusedError, 403),
    (AdmissionError, 503),
    (WorkerFailedError, 502),
    (RequestTimeoutError, 504),
)


def described(error: BaseException) -> tuple[int, str, str, str | None]:
    """Status, message, code and param. Only errors whose texts are made for clients keep their text."""
    match error:
        case HttpError():
            return error.status, error.message, error.error_code, None
        case RequestError():
            return _status_of(error), error.message, error.code, error.param
        case AdmissionError():
            return _status_of(error), error.message, error.code, None
        case RequestTimeoutError() | WorkerFailedError() | RequestCancelledError() | KeyRevokedError():
            return _status_of(error), str(error), error.code, None
        case PairingClosedError() | PairingRefusedError():
            return _status_of(error), str(error), error.code, None
        case _:
            return 500, "The server failed to answer; its log says why.", "internal_error", None


def _status_of(error: EdgeLLMError) -> int:
    return next((status for kind, status in _STATUS_OF if isinstance(error, kind)), 500)


def is_failure(error: BaseException) -> bool:
    """Whether the answer puts the blame on this server: 500 and 502, never overload or a timeout."""
    return described(error)[0] in (500, 502)


def error_response(
    error: BaseException, dialect: Dialect = Dialect.OPENAI, request_id: str = ""
) -> tuple[int, Headers, bytes]:
    status, message, code, param = described(error)
    if dialect is Dialect.ANTHROPIC:
        body = anthropic_error_body(status, message, code, param, request_id)
    else:
        body = error_body(status, message, code, param)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if isinstance(error, HttpError):
        headers += error.headers
    if isinstance(error, AdmissionError) and error.retry_after_seconds is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_seconds))))
    return status, headers, body


def stream_error(error: BaseException) -> dict[str, object]:
    """The error object that ends a stream whose status is already 200."""
    return error_object(*described(error))
