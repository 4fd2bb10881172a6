"""LLM: generate and chat, the surface, admission, and the end, on both paths."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.runtime.scripted_model import VOCAB_SIZE, scripted_llm
from tests.unit.runtime.scripted_runtime import (
    FinishReason,
    GuideType,
    LogprobEntry,
    Script,
    ScriptedModule,
    ShutdownMode,
    SubmitError,
)
from tests.unit.runtime.waiting import InThread, wait_until

from edgellm.errors import (
    ClosedError,
    ConfigError,
    GenerationError,
    RequestError,
    RuntimeUnavailableError,
    UnsupportedModalityError,
    UnsupportedModelError,
)
from edgellm.runtime.assembly import make_driver
from edgellm.runtime.contract import SCHEDULING_FIELDS
from edgellm.runtime.llm import LLM
from edgellm.runtime.llm_options import ContextCacheConfig, LLMOptions
from edgellm.runtime.loaded_model import BundleLayout
from edgellm.runtime.sampling_params import SamplingParams

USER = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f"}}
PATHS = pytest.mark.parametrize("in_flight", [True, False], ids=["in flight", "blocking"])
NO_CACHE = ContextCacheConfig(False)


def model(in_flight: bool = True, *, extensions: bool = True, **options: Any) -> tuple[ScriptedModule, LLM]:
    module = ScriptedModule(extensions=extensions)
    options.setdefault("context_cache", NO_CACHE)
    return module, scripted_llm(module, enable_in_flight_batching=in_flight, **options)


def echo(request: Any) -> Script:
    """Answer with the number of tokens of the prompt."""
    return Script(texts=[f"{len(request.requests[0].extensions.token_ids)} tokens"])


def cache_metrics(**values: int) -> Any:
    names = ["admitted_sequences", "hit_sequences", "matched_tokens", "reused_tokens", "current_records"]
    return SimpleNamespace(**dict.fromkeys(names, 0) | values)


@PATHS
def test_outputs_come_in_the_order_of_the_prompts(in_flight: bool) -> None:
    module, llm = model(in_flight)
    module.script = echo
    prompts = ["w " * count for count in range(1, 31)]
    assert [output.text for output in llm.generate(prompts)] == [f"{count} tokens" for count in range(1, 31)]
    llm.close()


@PATHS
def test_a_prompt_is_a_string_or_a_list_of_messages(in_flight: bool) -> None:
    module, llm = model(in_flight)
    module.script = echo
    assert [output.text for output in llm.generate("one two")] == ["2 tokens"]
    conversation = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert [output.text for output in llm.generate([conversation, "x"])] == ["3 tokens", "1 tokens"]
    assert llm.chat(conversation).text == "3 tokens"
    assert llm.generate([]) == []
    llm.close()


@pytest.mark.parametrize("prompts", [None, 3, {"role": "user"}, b"hi", [{"role": "user", "content": "x"}], [3], [None]])
def test_anything_else_is_a_type_error(prompts: Any) -> None:
    _, llm = model()
    with pytest.raises(TypeError):
        llm.generate(prompts)
    with pytest.raises(TypeError):
        llm.chat("hi")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        llm.generate("hi", {"temperature": 1})  # type: ignore[arg-type]
    llm.close()


def test_without_params_the_python_defaults_hold() -> None:
    module, llm = model()
    llm.generate("hi")
    (native,) = module.requests
    assert (native.temperature, native.top_k, native.max_generate_length) == (0.7, 50, 2048)
    llm.close()


@PATHS
def test_an_output_carries_what_the_response_said(in_flight: bool) -> None:
    module, llm = model(in_flight)
    native = LogprobEntry(3, -0.5, b"a")
    module.script = lambda _: Script(texts=["a"], reason=FinishReason.LENGTH, logprobs=[[native]], prompt_tokens=-1)
    output = llm.chat(USER, SamplingParams(num_logprobs=1))
    assert (output.text, output.token_ids, output.finish_reason) == ("a", [0], "length")
    assert (output.prompt_tokens, output.reasoning, output.tool_calls) == (None, None, None)
    assert output.logprobs is not None
    assert output.logprobs[0][0].bytes == b"a"
    llm.close()


def test_prompts_run_together_each_under_a_permit_of_its_own() -> None:
    module, llm = model(max_batch_size=2)
    gate = threading.Event()
    module.script = lambda _: Script(gate=gate)
    generating = InThread(lambda: llm.generate(["a"] * 10))
    wait_until(lambda: len(module.engines[0].handles) == 4)
    assert llm._admission._free == llm._admission.permits - 4
    gate.set()
    assert len(generating.outcome()) == 10
    llm.close()


def test_the_blocking_path_runs_one_request_at_a_time_and_callers_wait() -> None:
    module, llm = model(in_flight=False)
    callers = [InThread(lambda: llm.generate(["a", "b"])) for _ in range(3)]
    for caller in callers:
        assert len(caller.outcome()) == 2
    assert module.runtimes[0].most_active == 1
    assert llm._admission.permits == 1
    llm.close()


def test_callers_beyond_the_permits_block_and_are_never_refused() -> None:
    module, llm = model(max_batch_size=1)
    gate = threading.Event()
    module.script = lambda _: Script(gate=gate)
    assert llm._admission.permits == 1 + 16
    callers = [InThread(lambda: llm.chat(USER)) for _ in range(20)]
    wait_until(lambda: len(module.engines[0].handles) == 17)
    gate.set()
    assert [caller.outcome().finish_reason for caller in callers] == ["stop"] * 20
    llm.close()


@PATHS
def test_the_first_failure_cancels_the_other_prompts(in_flight: bool) -> None:
    module, llm = model(in_flight, max_batch_size=4)
    never = threading.Event()

    def script(request: Any) -> Script:
        tokens = len(request.requests[0].extensions.token_ids)
        return Script(error=RuntimeError("boom")) if tokens == 1 else Script(gate=never)

    module.script = script
    with pytest.raises(GenerationError, match="could not finish"):
        llm.generate(["a", "b b", "c c", "d d"])
    wait_until(lambda: llm._admission._free == llm._admission.permits)
    llm.close()


@PATHS
def test_a_wrong_prompt_is_found_before_any_starts(in_flight: bool) -> None:
    module, llm = model(in_flight)
    with pytest.raises(RequestError):
        llm.generate(["fine", ""])
    assert module.requests == []
    llm.close()


@PATHS
def test_an_interrupt_ends_what_was_started(in_flight: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module, llm = model(in_flight)
    module.script = lambda _: Script(gate=threading.Event())
    loaded = llm.loaded
    real_start = type(loaded).start

    def start_interrupted(self: Any, request: Any, on_released: Any) -> Any:
        generation = real_start(self, request, on_released)

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(generation, "next_chunk", interrupted)
        return generation

    monkeypatch.setattr(type(loaded), "start", start_interrupted)
    for prompts in (["a"], ["a", "b", "c"]):
        with pytest.raises(KeyboardInterrupt):
            llm.generate(prompts)
        wait_until(lambda: llm._admission._free == llm._admission.permits)
    llm.close()


# Tools, parsers, speech


CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def _saying(*texts: str) -> tuple[ScriptedModule, LLM]:
    module, llm = model()
    module.script = lambda _: Script(texts=texts)
    return module, llm


def test_calls_are_parsed_out_of_the_text() -> None:
    _, llm = _saying("I ask. ", CALL)
    output = llm.chat(USER, tools=[TOOL])
    assert (output.text, output.finish_reason) == ("I ask.", "tool_calls")
    [call] = output.tool_calls or []
    assert (call["type"], call["function"]) == ("function", {"name": "f", "arguments": '{"a": 1}'})
    raw = llm.chat(USER, tools=[TOOL], tool_parser="none")
    assert (raw.text, raw.tool_calls, raw.finish_reason) == (f"I ask. {CALL}", None, "stop")
    assert llm.chat(USER, tools=[TOOL], tool_choice="none").tool_calls is None
    assert llm.chat(USER).tool_calls is None
    assert "".join(delta.text for delta in llm.generate_stream(USER, tools=[TOOL])) == f"I ask. {CALL}"
    llm.close()


def test_reasoning_is_parsed_where_it_is_asked_for() -> None:
    _, llm = _saying("<think>Hm.</think>", "Yes.")
    assert llm.chat(USER).text == "<think>Hm.</think>Yes."
    output = llm.chat(USER, reasoning_parser="qwen3")
    assert (output.text, output.reasoning) == ("Yes.", "Hm.")
    llm.close()


def test_a_call_that_must_be_made_is_enforced_by_a_guide() -> None:
    module, llm = _saying(CALL)
    for choice in ("required", {"type": "function", "function": {"name": "f"}}):
        assert llm.chat(USER, tools=[TOOL], tool_choice=choice).finish_reason == "tool_calls"
        guide = module.requests[-1].requests[0].guided_decoding
        assert guide.type is GuideType.STRUCTURAL_TAG
    with pytest.raises(RequestError) as refusal:
        llm.chat(USER, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "g"}})
    assert refusal.value.param == "tool_choice"
    llm.close()


@pytest.mark.parametrize("parsers", [{"tool_parser": "mine"}, {"reasoning_parser": "mine"}, {"tool_parser": None}])
def test_a_parser_that_is_not_there_is_refused_by_name(parsers: dict[str, Any]) -> None:
    _, llm = model()
    with pytest.raises(RequestError) as refusal:
        llm.generate("hi", **parsers)
    assert [refusal.value.param] == list(parsers)
    assert llm.generate("hi", reasoning_parser="auto", tool_parser="none")
    llm.close()


def test_speech_is_refused_with_the_models_name() -> None:
    _, llm = model()
    for ask in (
        lambda: llm.generate_stream_with_audio(USER, audio_params=None),
        lambda: llm.generate_speech_stream("hi"),
    ):
        with pytest.raises(UnsupportedModalityError, match="scripted"):
            ask()
    assert llm.list_voices() == []
    llm.close()
    with pytest.raises(ClosedError):
        llm.list_voices()


def test_a_bias_for_a_token_that_does_not_exist_is_refused() -> None:
    _, llm = model()
    with pytest.raises(RequestError) as refusal:
        llm.generate("hi", SamplingParams(logit_bias={VOCAB_SIZE: 1}))
    assert refusal.value.param == f"logit_bias.{VOCAB_SIZE}"
    llm.close()


# The surface


@PATHS
def test_properties(in_flight: bool) -> None:
    _, llm = model(in_flight, max_batch_size=3)
    assert (llm.model_id, llm.runtime_kind, llm.max_batch_size) == ("scripted", "chat", 3)
    assert (llm.model_dir, llm.bundle_dir, llm.cache_dir) == ("/checkpoints/scripted", "/bundles/scripted", "/cache")
    assert (llm.bundle_layout.engine_type, llm.bundle_layout.has_speech) == ("llm", False)
    assert not llm.video_capable
    assert not llm.speech_available
    assert not llm.has_draft_model
    assert not llm.context_cache_enabled
    assert llm.capabilities.in_flight_batching is in_flight
    llm.close()


def test_scheduling_metrics_are_whole_numbers_and_absent_on_the_blocking_path() -> None:
    module, llm = model()
    metrics = llm.get_scheduling_metrics()
    assert metrics is not None
    assert set(metrics) == {*SCHEDULING_FIELDS, "queue_latency_avg_us", "queued", "resident"}
    assert (metrics["queue_latency_avg_us"], metrics["queued"], metrics["resident"]) == (0, 2, 1)
    module.engine_metrics = {"queue_latency_total_us": 7, "queue_latency_count": 2, "queue_latency_max_us": 5}
    metrics = llm.get_scheduling_metrics()
    assert metrics is not None
    assert (metrics["queue_latency_avg_us"], metrics["queue_latency_max_us"]) == (3, 5)
    llm.close()
    _, blocking = model(in_flight=False)
    assert blocking.get_scheduling_metrics() is None
    blocking.close()


def test_cache_metrics_are_absent_when_reuse_is_off_or_not_counted() -> None:
    _, off = model(in_flight=False)
    assert off.get_context_cache_metrics() is None
    off.close()
    _, engine = model(context_cache=ContextCacheConfig(True))
    assert engine.context_cache_enabled
    assert engine.get_context_cache_metrics() is None
    engine.close()


def test_each_text_request_on_the_blocking_path_leaves_one_line_about_reuse(
    caplog: pytest.LogCaptureFixture,
) -> None:
    module = ScriptedModule()
    module.cache_metrics.extend(
        [
            cache_metrics(),
            cache_metrics(admitted_sequences=1, current_records=1),
            cache_metrics(admitted_sequences=2, hit_sequences=1, matched_tokens=9, reused_tokens=8, current_records=2),
        ]
    )
    llm = scripted_llm(module, enable_in_flight_batching=False, context_cache=ContextCacheConfig(True))
    with caplog.at_level(logging.INFO):
        llm.generate("hi")
        llm.generate("hi")
    first, second = (record.getMessage() for record in caplog.records if "context reuse" in record.message)
    assert "request reused_tokens=0 matched_tokens=0 hits=0/1 hit_rate=0.0000" in first
    assert "request reused_tokens=8 matched_tokens=9 hits=1/1 hit_rate=1.0000" in second
    assert "total reused_tokens=8 matched_tokens=9 hits=1/2 hit_rate=0.5000 records=2" in second
    metrics = llm.get_context_cache_metrics()
    assert metrics is not None
    assert metrics.reused_tokens == 8
    llm.close()


def test_in_flight_requests_leave_no_such_line(caplog: pytest.LogCaptureFixture) -> None:
    _, llm = model(context_cache=ContextCacheConfig(True))
    with caplog.at_level(logging.INFO):
        llm.generate("hi")
    assert "context reuse" not in caplog.text
    llm.close()


# Construction


def test_the_engine_gets_what_nvidias_constructor_takes() -> None:
    module, llm = model(extensions=False, max_batch_size=2, context_cache=ContextCacheConfig(True, 7, 1, 2))
    arguments = module.engines[0].arguments
    *paths, cache = arguments["positional"]
    assert paths == ["/bundles/scripted", "", {}, "/checkpoints/scripted"]
    assert (cache.enabled, cache.max_records) == (True, 7)
    assert (cache.recurrent_snapshot_pool_bytes, cache.partial_kv_snapshot_pool_bytes) == (1, 2)
    assert arguments["max_batch_size"] == 2
    llm.close()


def test_the_blocking_path_captures_the_decoding_graph_once() -> None:
    module, llm = model(in_flight=False, extensions=False)
    llm.generate(["a", "b"])
    assert module.runtimes[0].captured_graphs == 1
    llm.close()


@PATHS
def test_a_failed_construction_is_a_start_up_error_with_the_reason(in_flight: bool) -> None:
    module = ScriptedModule()

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("the profile is for 2 sequences")

    module.RequestEngine = module.LLMRuntime = refuse  # type: ignore[method-assign, assignment]
    with pytest.raises(RuntimeUnavailableError, match="the profile is for 2 sequences"):
        scripted_llm(module, enable_in_flight_batching=in_flight)


def test_a_bundle_that_is_no_text_model_is_refused() -> None:
    shape = LLMOptions("m").shape("native", 100)
    with pytest.raises(UnsupportedModelError, match="codec"):
        make_driver(ScriptedModule(), BundleLayout("/b", "codec"), "", shape)  # type: ignore[arg-type]


# The end


@PATHS
def test_after_close_every_call_says_so(in_flight: bool) -> None:
    module, llm = model(in_flight)
    with llm as entered:
        assert entered is llm
        llm.generate("hi")
    llm.close()
    for call in (
        lambda: llm.generate("hi"),
        lambda: llm.chat(USER),
        lambda: next(llm.generate_stream(USER)),
        llm.get_scheduling_metrics,
        llm.get_context_cache_metrics,
        llm.list_voices,
        llm.serve,
        llm.__enter__,
    ):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    if in_flight:
        assert module.engines[0].shutdown_modes == [ShutdownMode.DRAIN]


@PATHS
def test_close_waits_for_what_runs_and_sends_away_who_waits(in_flight: bool) -> None:
    module, llm = model(in_flight, max_batch_size=1)
    gate = threading.Event()
    module.script = lambda _: Script(gate=gate)
    running = InThread(lambda: llm.chat(USER))
    wait_until(lambda: module.requests)
    filling = [InThread(lambda: llm.chat(USER)) for _ in range(llm._admission._free)]
    wait_until(lambda: llm._admission._free == 0)
    waiting = InThread(lambda: llm.chat(USER))
    closing = InThread(llm.close)
    wait_until(lambda: llm._closed)
    with pytest.raises(ClosedError):
        waiting.outcome()
    assert not closing.done
    gate.set()
    closing.outcome()
    assert running.outcome().finish_reason == "stop"
    for filler in filling:
        assert filler.outcome().finish_reason == "stop"


def test_a_submit_that_loses_against_close_says_closed() -> None:
    module, llm = model()

    def closing_submit(request: Any) -> Script:
        llm._closed = True
        return Script(submit_error=SubmitError("the engine is shutting down"))

    module.script = closing_submit
    with pytest.raises(ClosedError):
        llm.chat(USER)


@PATHS
def test_close_does_not_wait_for_a_reader_that_stopped_reading(in_flight: bool) -> None:
    _, llm = model(in_flight)
    stream = llm.generate_stream(USER)
    next(stream)
    InThread(llm.close).outcome()
    assert [delta.text for delta in stream][:2] == ["two ", "three"]


def test_two_closes_at_once_both_return_after_the_drain() -> None:
    module, llm = model()
    gate = threading.Event()
    module.script = lambda _: Script(gate=gate)
    running = InThread(lambda: llm.chat(USER))
    wait_until(lambda: module.requests)
    closings = [InThread(llm.close) for _ in range(2)]
    wait_until(lambda: llm._closed)
    assert not any(closing.done for closing in closings)
    gate.set()
    for closing in closings:
        closing.outcome()
    running.outcome()
    assert module.engines[0].shutdown_modes == [ShutdownMode.DRAIN]


@pytest.mark.parametrize(
    "options", [{"reasoning_parser": "mine"}, {"tool_call_parser": "mine"}, {"allowed_local_media_path": "/srv"}]
)
def test_serve_refuses_what_it_cannot_do_before_it_binds(options: dict[str, Any]) -> None:
    _, llm = model()
    with pytest.raises((RequestError, ConfigError), match=next(iter(options))):
        llm.serve(port=0, **options)
    llm.close()
