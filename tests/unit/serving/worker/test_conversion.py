"""Conversion: requests, deltas and errors are the same on the other side of a frame."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.serving.scripted_lane import capabilities

from edgellm import errors
from edgellm.errors import (
    AdmissionError,
    ConfigError,
    EdgeLLMError,
    GenerationError,
    RequestError,
    ServerBusyError,
    UnsupportedModelError,
    WorkerFailedError,
)
from edgellm.runtime.generation import ChatPrompt, GenerationRequest, TextPrompt, TokenPrompt
from edgellm.runtime.outputs import LogprobEntry, StreamDelta
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.worker.conversion import (
    from_delta_message,
    load_error,
    to_count,
    to_delta_message,
    to_error,
    to_failure,
    to_request,
    to_submit,
)
from edgellm.serving.worker.frames import FrameError
from edgellm.serving.worker.messages import Count, Delta, Failure, Ready, Submit

PARAMS = st.builds(
    SamplingParams,
    temperature=st.floats(0, 2),
    top_p=st.floats(0.01, 1),
    top_k=st.integers(-1, 1000),
    seed=st.none() | st.integers(0, 2**64 - 1),
    max_tokens=st.integers(1, 2**40),
    stop=st.none() | st.lists(st.text(min_size=1, max_size=8), max_size=3),
    logit_bias=st.none() | st.dictionaries(st.integers(0, 2**31 - 1), st.floats(-100, 100), max_size=3),
    guided_decoding=st.none() | st.just(("regex", "a+")) | st.just({"json_object": True}),
    min_p=st.floats(0, 1),
    reuse_context=st.booleans(),
)


def over_the_wire(message: msgspec.Struct) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message))


@given(params=PARAMS, token_ids=st.lists(st.integers(0, 2**31 - 1), max_size=20), domain=st.text(max_size=4))
def test_a_tokenised_request_travels_as_its_ids(params: SamplingParams, token_ids: list[int], domain: str) -> None:
    request = GenerationRequest(ChatPrompt([{"role": "user", "content": "secret"}]), params, token_ids, domain)
    message = to_submit(3, request)
    assert b"secret" not in msgspec.msgpack.encode(message)
    received = to_request(over_the_wire(message))
    assert (received.params, received.prompt_token_ids, received.cache_domain) == (params, token_ids, domain)


@pytest.mark.parametrize(
    "prompt",
    [
        TextPrompt("x"),
        ChatPrompt([{"role": "user", "content": "x"}], [{"type": "function", "function": {"name": "f"}}], "none"),
        TokenPrompt([1, 2]),
    ],
    ids=["text", "chat", "tokens"],
)
def test_a_prompt_that_was_not_tokenised_travels_whole(prompt: Any) -> None:
    request = GenerationRequest(prompt, SamplingParams(max_tokens=5))
    assert to_request(over_the_wire(to_submit(1, request))).params == request.params
    submitted = to_request(over_the_wire(to_submit(1, request))).prompt
    counted = to_request(over_the_wire(to_count(1, request))).prompt
    assert submitted == counted
    assert str(submitted) == str(prompt).replace("()", "[]").replace("({", "[{").replace("},)", "}]")


@pytest.mark.parametrize(
    "message",
    [Submit(1, {"volume": 11}, [1]), Submit(1, {}), Submit(1, {}, None, {"colour": "red"}), Count(1, {}, {"x": 1})],
    ids=["parameter", "no prompt", "prompt", "count"],
)
def test_a_request_of_another_version_is_a_broken_frame(message: Submit | Count) -> None:
    with pytest.raises(FrameError):
        to_request(message)


def test_values_out_of_range_are_refused_on_this_side_too() -> None:
    with pytest.raises(RequestError, match="temperature"):
        to_request(Submit(1, {"temperature": 9.0}, [1]))


@given(
    text=st.text(),
    token_ids=st.lists(st.integers(0, 2**31 - 1), max_size=3),
    reason=st.none() | st.sampled_from(["stop", "length"]),
    logprobs=st.none() | st.just([[LogprobEntry(1, -0.5, "\ufffd", b"\xff")]]),
)
def test_deltas_are_the_same_on_the_other_side(
    text: str, token_ids: list[int], reason: str | None, logprobs: list[list[LogprobEntry]] | None
) -> None:
    delta = StreamDelta(text, token_ids, 5, reason is not None, reason, logprobs, None, 2, 0 if reason else None)
    assert from_delta_message(over_the_wire(to_delta_message(9, delta))) == delta


def test_a_plain_delta_is_a_few_bytes() -> None:
    message: Delta = to_delta_message(1, StreamDelta("hello", [1]))
    assert len(msgspec.msgpack.encode(message)) < 24


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, (RequestError, AdmissionError, GenerationError))
    ],
)
def test_errors_that_clients_hear_keep_their_class_and_text(kind: type[EdgeLLMError]) -> None:
    error = kind("the text")
    if isinstance(error, RequestError):
        error.param = "messages[3]"
    received = to_error(over_the_wire(to_failure(error)))
    assert type(received) is kind
    assert str(received) == "the text"
    assert getattr(received, "param", None) == getattr(error, "param", None)


def test_the_time_to_retry_travels_with_its_error() -> None:
    received = to_error(to_failure(ServerBusyError("busy", retry_after_seconds=4.5)))
    assert isinstance(received, ServerBusyError)
    assert received.retry_after_seconds == 4.5
    hopeless = to_error(to_failure(ServerBusyError("busy", retry_after_seconds=None)))
    assert isinstance(hopeless, ServerBusyError)
    assert hopeless.retry_after_seconds is None


def test_the_cause_of_a_failure_reaches_the_daemons_log() -> None:
    received = to_error(over_the_wire(to_failure(GenerationError("it failed", reason="CUDA error 700"))))
    assert isinstance(received, GenerationError)
    assert (str(received), received.reason) == ("it failed", "CUDA error 700")


def test_texts_that_are_for_operators_stay_in_the_worker() -> None:
    failure = to_failure(ConfigError("/home/somebody/secret.toml: wrong"))
    assert "secret" not in str(failure)
    assert type(to_error(failure)) is GenerationError


@pytest.mark.parametrize("name", ["", "EdgeLLMError", "ConfigError", "annotations", "NoSuchError", "__builtins__"])
def test_a_class_that_no_client_may_see_becomes_a_plain_failure(name: str) -> None:
    assert type(to_error(Failure(name, "x"))) is GenerationError


def test_a_load_failure_keeps_its_exit_code() -> None:
    error = load_error(UnsupportedModelError.code, "x.gguf: unknown family")
    assert isinstance(error, UnsupportedModelError)
    assert error.exit_code == UnsupportedModelError.exit_code
    assert isinstance(load_error("something else", "x"), WorkerFailedError)


def test_capabilities_are_the_same_on_the_other_side() -> None:
    ready = Ready(1, capabilities(), "tiny", "bundle")
    assert over_the_wire(ready) == ready
