"""Native failures: markers, states of the runtime, and no native text for clients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edgellm.errors import (
    CheckpointError,
    ConfigError,
    ContextLengthError,
    EdgeLLMError,
    GenerationError,
    GuideLimitError,
    InvalidSchemaError,
    RequestCancelledError,
    RequestError,
    RuntimeUnavailableError,
    ServerBusyError,
    ShuttingDownError,
    UnsupportedModelError,
    UnusableOutputError,
    WorkerFailedError,
)
from edgellm.runtime.native_errors import map_load_error, map_request_error


class NativeError(RuntimeError):
    pass


class InvalidRequest(NativeError):
    pass


class ExecutorError(NativeError):
    pass


class ModelFileError(NativeError):
    pass


class SubmitError(Exception):
    pass


OURS: Any = SimpleNamespace(
    Error=NativeError,
    InvalidRequest=InvalidRequest,
    ExecutorError=ExecutorError,
    ModelFileError=ModelFileError,
    SubmitError=SubmitError,
)
NVIDIAS: Any = SimpleNamespace(SubmitError=SubmitError)
NATIVE_TEXT = "/opt/engine/llm.engine at 0x7fff"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError(f"EDGELLM_INPUT_TOO_LONG: {NATIVE_TEXT}"), ContextLengthError),
        (RuntimeError(f"foo EDGELLM_INPUT_TOO_LONG {NATIVE_TEXT}"), ContextLengthError),
        (RuntimeError(f"EDGELLM_BAD_GUIDE: {NATIVE_TEXT}"), InvalidSchemaError),
        (RuntimeError(f"EDGELLM_GUIDE_LIMIT: {NATIVE_TEXT}"), GuideLimitError),
        (RuntimeError(f"EDGELLM_BAD_VALUE: {NATIVE_TEXT}"), RequestError),
        (RuntimeError(f"EDGELLM_BAD_MEDIA_COUNT {NATIVE_TEXT}"), RequestError),
        (RuntimeError(f"Runtime coordinator has a failed worker; refusing {NATIVE_TEXT}"), WorkerFailedError),
        (SubmitError(f"command queue is full; retry later {NATIVE_TEXT}"), ServerBusyError),
        (SubmitError(f"too many requests in flight; retry later {NATIVE_TEXT}"), ServerBusyError),
        (SubmitError(f"shutting down {NATIVE_TEXT}"), ShuttingDownError),
        (TypeError(f"incompatible function arguments {NATIVE_TEXT}"), RequestError),
        (OverflowError(NATIVE_TEXT), RequestError),
        (RuntimeError(f"request was cancelled {NATIVE_TEXT}"), RequestCancelledError),
        (RuntimeError(f"CUDA error in {NATIVE_TEXT}"), GenerationError),
        (MemoryError(NATIVE_TEXT), GenerationError),
    ],
)
def test_causes_are_told_apart_and_native_text_stays_behind(error: Exception, kind: type[EdgeLLMError]) -> None:
    mapped = map_request_error(NVIDIAS, error)
    assert type(mapped) is kind
    assert NATIVE_TEXT not in str(mapped)


def test_texts_of_our_own_module_are_made_for_clients() -> None:
    error = InvalidRequest("EDGELLM_BAD_VALUE: logit_bias token must be between 0 and 9, not 12")
    mapped = map_request_error(OURS, error)
    assert isinstance(mapped, RequestError)
    assert str(mapped) == "logit_bias token must be between 0 and 9, not 12"
    assert mapped.param == "logit_bias"
    stop = map_request_error(OURS, InvalidRequest("EDGELLM_BAD_VALUE: stop_strings[2] must have between 1 and 9 bytes"))
    assert isinstance(stop, RequestError)
    assert stop.param == "stop"
    guide = map_request_error(OURS, InvalidRequest("EDGELLM_BAD_GUIDE: guided_decoding.json_schema.a[0].$ref is bad"))
    assert isinstance(guide, InvalidSchemaError)
    assert (guide.param, str(guide)[:15]) == ("guided_decoding.json_schema.a[0].$ref", "guided_decoding")
    limit = map_request_error(OURS, InvalidRequest("EDGELLM_GUIDE_LIMIT: guided_decoding.ebnf met a limit"))
    assert isinstance(limit, GuideLimitError)
    assert (limit.param, str(limit)) == ("guided_decoding.ebnf", "guided_decoding.ebnf met a limit")
    long = map_request_error(OURS, InvalidRequest("EDGELLM_INPUT_TOO_LONG: the prompt has 9 tokens"))
    assert str(long) == "the prompt has 9 tokens"
    assert isinstance(map_request_error(OURS, InvalidRequest("no marker")), RequestError)
    assert isinstance(map_request_error(OURS, ExecutorError("step failed")), WorkerFailedError)


def test_the_log_gets_our_own_reason_and_of_other_runtimes_the_type_alone() -> None:
    ours = map_request_error(OURS, RuntimeError("the model gave a logit that is not a number"))
    assert type(ours) is UnusableOutputError
    theirs = map_request_error(NVIDIAS, RuntimeError(NATIVE_TEXT))
    assert isinstance(ours, GenerationError)
    assert isinstance(theirs, GenerationError)
    assert ours.reason == "RuntimeError: the model gave a logit that is not a number"
    assert theirs.reason == "RuntimeError"


def test_what_the_caller_cancelled_is_cancelled_whatever_the_runtime_calls_it() -> None:
    assert isinstance(map_request_error(OURS, RuntimeError("gone"), cancelled=True), RequestCancelledError)
    poisoned = map_request_error(OURS, RuntimeError("has a failed worker"), cancelled=True)
    assert isinstance(poisoned, WorkerFailedError)


def test_our_own_errors_pass() -> None:
    error = ConfigError("x")
    assert map_request_error(OURS, error) is error
    assert map_load_error(OURS, error, in_flight_batching=True) is error


def test_a_failed_start_tells_the_operator_the_engines_own_reason() -> None:
    in_flight = map_load_error(NVIDIAS, RuntimeError("no draft here"), in_flight_batching=True)
    assert isinstance(in_flight, RuntimeUnavailableError)
    assert "in-flight batching" in str(in_flight)
    assert "no draft here" in str(in_flight)
    blocking = map_load_error(NVIDIAS, RuntimeError("no draft here"), in_flight_batching=False)
    assert "no draft here" in str(blocking)
    damaged = map_load_error(OURS, ModelFileError("llm.gguf: tensor x is truncated"), in_flight_batching=True)
    assert type(damaged) is CheckpointError
    assert str(damaged) == "llm.gguf: tensor x is truncated"
    unknown = map_load_error(OURS, ModelFileError("llm.gguf: unsupported architecture"), in_flight_batching=True)
    assert type(unknown) is UnsupportedModelError
