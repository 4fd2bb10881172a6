"""generate_stream on both paths, with the endings that a real runtime seldom gives."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.unit.runtime.scripted_model import scripted_llm
from tests.unit.runtime.scripted_runtime import FinishReason, Script, ScriptedModule, SubmitError
from tests.unit.runtime.waiting import InThread, wait_until

from edgellm.errors import (
    ClosedError,
    ContextLengthError,
    GenerationError,
    RequestError,
    ServerBusyError,
    WorkerFailedError,
)
from edgellm.runtime.llm import LLM
from edgellm.runtime.outputs import StreamDelta

USER = [{"role": "user", "content": "hi"}]
PATHS = pytest.mark.parametrize("in_flight", [True, False], ids=["in flight", "blocking"])


def model(in_flight: bool = True, script: Script | None = None, **options: Any) -> tuple[ScriptedModule, LLM]:
    module = ScriptedModule()
    if script is not None:
        module.script = lambda _: script
    options = {"context_cache": {"enabled": False}} | options
    from edgellm.runtime.llm_options import ContextCacheConfig

    options["context_cache"] = ContextCacheConfig.parse(options["context_cache"])
    return module, scripted_llm(module, enable_in_flight_batching=in_flight, **options)


def free_permits(llm: LLM) -> int:
    return llm._admission._free


def all_permits_free(llm: LLM) -> bool:
    return free_permits(llm) == llm._admission.permits


@PATHS
def test_deltas_concatenate_and_the_last_one_says_how_it_ended(in_flight: bool) -> None:
    _, llm = model(in_flight)
    deltas = list(llm.generate_stream(USER))
    assert "".join(delta.text for delta in deltas) == "one two three"
    assert [delta.finished for delta in deltas] == [False, False, False, True]
    assert [delta.finish_reason for delta in deltas] == [None, None, None, "stop"]
    assert deltas[0].prompt_tokens == 7
    llm.close()


@PATHS
def test_nothing_happens_before_the_first_next(in_flight: bool) -> None:
    module, llm = model(in_flight)
    stream = llm.generate_stream([{"role": "nobody"}])
    assert module.requests == []
    with pytest.raises(RequestError, match="role"):
        next(stream)
    late = llm.generate_stream(USER)
    llm.close()
    with pytest.raises(ClosedError):
        next(late)


@PATHS
def test_a_stream_that_was_never_read_closes_without_a_trace(in_flight: bool) -> None:
    module, llm = model(in_flight)
    stream = llm.generate_stream(USER)
    stream.close()
    stream.close()
    assert list(stream) == []
    assert module.requests == []
    llm.close()


@PATHS
def test_close_cancels_once_and_gives_the_place_back(in_flight: bool) -> None:
    gate = threading.Event()
    module, llm = model(in_flight, Script(gate=gate))
    stream = llm.generate_stream(USER)
    assert next(stream).text == "one "
    stream.close()
    stream.close()
    assert list(stream) == []
    wait_until(lambda: all_permits_free(llm))
    (channel,) = module.requests[0].stream_channels
    assert channel.is_cancelled()
    if in_flight:
        (handle,) = module.engines[0].handles
        assert (handle.cancel_calls, channel.cancel_calls) == (1, 2)
        assert handle.ready()
    llm.close()


@PATHS
def test_close_after_the_terminal_delta_does_nothing(in_flight: bool) -> None:
    module, llm = model(in_flight)
    stream = llm.generate_stream(USER)
    for delta in stream:
        if delta.finished:
            stream.close()
    (channel,) = module.requests[0].stream_channels
    assert not channel.is_cancelled()
    assert list(stream) == []
    llm.close()


@PATHS
def test_close_from_another_thread_stops_a_reader_inside_next(in_flight: bool) -> None:
    module, llm = model(in_flight, Script(gate=threading.Event()))
    stream = llm.generate_stream(USER)
    reading = InThread(lambda: list(stream))
    wait_until(lambda: module.requests)
    InThread(stream.close).outcome()
    assert all(not delta.finished for delta in reading.outcome())
    wait_until(lambda: all_permits_free(llm))
    llm.close()


@PATHS
def test_close_while_waiting_for_admission_never_starts_it(in_flight: bool) -> None:
    gate = threading.Event()
    module, llm = model(in_flight, Script(gate=gate), max_batch_size=1)
    running = [llm.generate_stream(USER) for _ in range(free_permits(llm))]
    for stream in running:
        next(stream)
    waiting = llm.generate_stream(USER)
    reading = InThread(lambda: list(waiting))
    waiting.close()
    assert reading.outcome() == []
    assert len(module.requests) == len(running)
    gate.set()
    for stream in running:
        list(stream)
    llm.close()


def test_a_second_reader_is_told_so() -> None:
    module, llm = model(script=Script(gate=threading.Event()))
    stream = llm.generate_stream(USER)
    reading = InThread(lambda: list(stream))
    wait_until(lambda: module.requests)
    with pytest.raises(ValueError, match="another thread"):
        next(stream)
    stream.close()
    reading.outcome()
    llm.close()


@PATHS
def test_a_dropped_stream_is_closed(in_flight: bool) -> None:
    module, llm = model(in_flight, Script(gate=threading.Event()))
    stream = llm.generate_stream(USER)
    next(stream)
    del stream
    (channel,) = module.requests[0].stream_channels
    wait_until(channel.is_cancelled)
    wait_until(lambda: all_permits_free(llm))
    llm.close()


@PATHS
@pytest.mark.parametrize("terminal", [True, False])
def test_a_late_error_surfaces_after_the_deltas(in_flight: bool, terminal: bool) -> None:
    script = Script(terminal=terminal, error=RuntimeError("coordinator has a failed worker"))
    _, llm = model(in_flight, script)
    stream = llm.generate_stream(USER)
    seen: list[StreamDelta] = []
    with pytest.raises(WorkerFailedError):
        seen.extend(stream)
    assert list(stream) == []
    llm.close()


@PATHS
def test_a_text_whose_end_nobody_announced_is_never_stop(in_flight: bool) -> None:
    _, llm = model(in_flight, Script(terminal=False))
    deltas = list(llm.generate_stream(USER))
    assert "".join(delta.text for delta in deltas) == "one two three"
    assert (deltas[-1].finished, deltas[-1].finish_reason) == (True, "error")
    llm.close()


@PATHS
@pytest.mark.parametrize(
    ("reason", "name"),
    [(FinishReason.ERROR, "error"), (FinishReason.NOT_FINISHED, None), (FinishReason.LENGTH, "length")],
)
def test_the_terminal_delta_says_what_the_runtime_said(in_flight: bool, reason: FinishReason, name: str) -> None:
    _, llm = model(in_flight, Script(reason=reason))
    deltas = list(llm.generate_stream(USER))
    assert (deltas[-1].finished, deltas[-1].finish_reason) == (True, name)
    llm.close()


def test_a_channel_that_somebody_else_cancelled_is_cancelled_not_stop() -> None:
    module, llm = model(False, Script(gate=threading.Event()))
    stream = llm.generate_stream(USER)
    next(stream)
    next(stream)
    module.requests[0].stream_channels[0].cancel()
    assert [(delta.finished, delta.finish_reason) for delta in stream] == [(True, "cancelled")]
    llm.close()


def test_the_result_is_asked_for_at_the_end_unless_the_caller_cancelled() -> None:
    module, llm = model()
    list(llm.generate_stream(USER))
    assert module.engines[0].handles[0].get_calls == 1
    llm.close()
    assert module.engines[0].handles[0].get_calls == 1


def test_the_place_is_free_once_the_terminal_delta_is_out() -> None:
    _, llm = model()
    stream = llm.generate_stream(USER)
    while not next(stream).finished:
        assert not all_permits_free(llm)
    assert all_permits_free(llm)
    llm.close()


@PATHS
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SubmitError("command queue is full; retry later"), ServerBusyError),
        (RuntimeError("EDGELLM_INPUT_TOO_LONG"), ContextLengthError),
        (RuntimeError("boom at 0x7f"), GenerationError),
    ],
)
def test_a_refused_submit_gives_the_place_back(in_flight: bool, error: Exception, kind: type[Exception]) -> None:
    _, llm = model(in_flight, Script(submit_error=error))
    stream = llm.generate_stream(USER)
    with pytest.raises(kind):
        next(stream)
    wait_until(lambda: all_permits_free(llm))
    with pytest.raises(StopIteration):
        next(stream)
    llm.close()


@PATHS
def test_an_interrupt_leaves_nothing_running(in_flight: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module, llm = model(in_flight, Script(gate=threading.Event()))
    stream = llm.generate_stream(USER)
    next(stream)
    next(stream)
    generation = stream._generation
    assert generation is not None

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(generation, "next_chunk", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    assert module.requests[0].stream_channels[0].is_cancelled()
    wait_until(lambda: all_permits_free(llm))
    llm.close()


def test_a_string_is_a_users_message() -> None:
    _, llm = model()
    assert len(list(llm.generate_stream("hi"))) == 4
    llm.close()
