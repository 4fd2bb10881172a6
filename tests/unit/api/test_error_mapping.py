"""Every error of the tree as HTTP: one status, one shape, no text that was not made for clients."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgellm import errors
from edgellm.api.error_mapping import HttpError, error_response, stream_error

NATIVE_TEXT = "/secret/path 0xdeadbeef native text"
CASES: list[tuple[BaseException, int, str]] = [
    (errors.RequestError("x", param="a"), 400, "invalid_value"),
    (errors.UnknownParameterError("x"), 400, "unknown_parameter"),
    (errors.UnsupportedParameterError("x"), 400, "unsupported_parameter"),
    (errors.UnsupportedModalityError("x"), 400, "unsupported_modality"),
    (errors.ContextLengthError("x"), 400, "context_length_exceeded"),
    (errors.InvalidSchemaError("x"), 400, "invalid_schema"),
    (errors.GuideLimitError("x"), 400, "guide_limit_exceeded"),
    (errors.ModelNotFoundError("x"), 404, "model_not_found"),
    (errors.DuplicateRequestIdError("x"), 409, "duplicate_request_id"),
    (errors.ServerBusyError("x"), 429, "server_busy"),
    (errors.ShuttingDownError("x"), 503, "shutting_down"),
    (errors.ModelLoadingError("x"), 503, "model_loading"),
    (errors.ModelUnavailableError("x"), 503, "model_unavailable"),
    (errors.WorkerFailedError("x"), 502, "worker_failed"),
    (errors.RequestTimeoutError("x"), 504, "request_timeout"),
    (errors.RequestCancelledError("x"), 500, "request_cancelled"),
    (errors.GenerationError(NATIVE_TEXT), 500, "internal_error"),
    (errors.CheckpointError(NATIVE_TEXT), 500, "internal_error"),
    (errors.ClosedError(NATIVE_TEXT), 500, "internal_error"),
    (ValueError(NATIVE_TEXT), 500, "internal_error"),
    (HttpError(413, "x", "request_too_large"), 413, "request_too_large"),
]


@pytest.mark.parametrize(("error", "status", "code"), CASES, ids=lambda value: type(value).__name__)
def test_errors_have_their_status_code_and_shape(error: BaseException, status: int, code: str) -> None:
    answered, headers, body = error_response(error)
    value: Any = json.loads(body)
    assert answered == status
    assert set(value["error"]) == {"message", "type", "param", "code"}
    assert value["error"]["code"] == code
    assert "secret" not in body.decode()
    assert dict(headers)[b"content-length"] == b"%d" % len(body)
    assert (b"retry-after" in dict(headers)) == isinstance(error, errors.AdmissionError)
    assert stream_error(error) == value


def test_retry_after_is_whole_seconds_and_at_least_one() -> None:
    for seconds, text in ((0.2, b"1"), (1.0, b"1"), (7.1, b"8")):
        _, headers, _ = error_response(errors.ServerBusyError("x", retry_after_seconds=seconds))
        assert dict(headers)[b"retry-after"] == text


def test_where_no_wait_helps_there_is_no_retry_after() -> None:
    _, headers, _ = error_response(errors.ModelUnavailableError("x", retry_after_seconds=None))
    assert b"retry-after" not in dict(headers)
