"""The bound runtimes: who encodes prompts, what is refused by name, and where the GIL is released."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.native.runtime_driver import Ask, BundleMaker, native_module, runtime_options

module = native_module()

PROMPT = [5, 6, 7, 8]
DEADLINE_SECONDS = 120.0
NEVER_SECONDS = 1000.0


@pytest.fixture(scope="module")
def bundle(tiny_bundle: BundleMaker) -> Path:
    return tiny_bundle("llama")


@pytest.fixture
def make_engine(bundle: Path) -> Iterator[Callable[..., Any]]:
    engines: list[Any] = []

    def make(**options: Any) -> Any:
        engine = module.RequestEngine(str(bundle), max_batch_size=2, options=runtime_options(threads=1, **options))
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.shutdown(module.ShutdownMode.CANCEL)


def to_encode(max_tokens: int = 4) -> Any:
    """A request that brings messages and no token ids."""
    request = Ask(PROMPT, max_tokens=max_tokens).native()
    item = module.Request([module.create_text_message("user", "hello")])
    request.requests = [item]
    return request


# Prompt encoding


def test_the_encoder_gets_the_very_request_on_the_callers_thread(make_engine: Callable[..., Any]) -> None:
    calls: list[tuple[Any, int, int]] = []

    def encode(request: Any, index: int) -> list[int]:
        calls.append((request, index, threading.get_ident()))
        return PROMPT

    engine, request = make_engine(prompt_encoder=encode), to_encode()
    encoded = engine.submit(request).get()
    assert calls == [(request, 0, threading.get_ident())]
    assert calls[0][0] is request
    assert encoded.output_ids == engine.submit(Ask(PROMPT, max_tokens=4).native()).get().output_ids
    assert request.requests[0].extensions.token_ids is None


def test_a_request_with_token_ids_is_not_encoded(make_engine: Callable[..., Any]) -> None:
    def refuse(_request: Any, _index: int) -> list[int]:
        raise AssertionError("not needed")

    assert len(make_engine(prompt_encoder=refuse).submit(Ask(PROMPT, max_tokens=4).native()).get().output_ids[0]) == 4


def test_counting_takes_the_same_path(make_engine: Callable[..., Any], bundle: Path) -> None:
    options = runtime_options(threads=1, prompt_encoder=lambda _request, index: [7] * (index + 10))
    runtime = module.LLMRuntime(str(bundle), options=options)
    request = to_encode()
    request.requests = [*request.requests, *Ask(PROMPT).native().requests, *request.requests]
    assert runtime.count_prompt_tokens(request) == [10, 4, 12]
    assert make_engine(prompt_encoder=options.prompt_encoder).count_prompt_tokens(request=to_encode()) == [10]


def test_what_the_encoder_raises_comes_through_and_harms_nothing(make_engine: Callable[..., Any]) -> None:
    def fail(_request: Any, _index: int) -> list[int]:
        raise LookupError("no template")

    engine = make_engine(prompt_encoder=fail)
    for call in (engine.submit, engine.count_prompt_tokens):
        with pytest.raises(LookupError, match="no template"):
            call(to_encode())
    assert engine.submit(Ask(PROMPT, max_tokens=2).native()).get().prompt_token_counts == [4]


@pytest.mark.parametrize("result", [None, "text", [1.5], [2**31], ["1"], {1: 2}])
def test_an_encoder_that_gives_no_token_ids_is_a_type_error(result: object, make_engine: Callable[..., Any]) -> None:
    engine = make_engine(prompt_encoder=lambda _request, _index: result)
    with pytest.raises(TypeError, match=r"options\.prompt_encoder must return a list of token ids"):
        engine.submit(to_encode())


def test_an_encoder_may_give_an_array(make_engine: Callable[..., Any]) -> None:
    engine = make_engine(prompt_encoder=lambda _request, _index: np.array(PROMPT, dtype=np.int64))
    assert engine.count_prompt_tokens(to_encode()) == [4]


def test_an_encoder_that_empties_the_request_is_found_out(bundle: Path) -> None:
    def empty(request: Any, _index: int) -> list[int]:
        request.requests = []
        return PROMPT

    runtime = module.LLMRuntime(str(bundle), options=runtime_options(threads=1, prompt_encoder=empty))
    with pytest.raises(module.InvalidRequest, match="requests were removed"):
        runtime.handle_request(to_encode())


def test_without_an_encoder_messages_are_refused_by_field(make_engine: Callable[..., Any]) -> None:
    with pytest.raises(module.InvalidRequest, match=r"requests\[0\]\.extensions\.token_ids is not set"):
        make_engine().submit(to_encode())


def test_a_request_may_change_once_it_is_submitted(make_engine: Callable[..., Any]) -> None:
    engine, request = make_engine(), Ask(PROMPT, max_tokens=8).native()
    expected = engine.submit(Ask(PROMPT, max_tokens=8).native()).get().output_ids
    handle = engine.submit(request)
    request.requests = []
    request.max_generate_length = 1
    assert handle.get().output_ids == expected


# Handles and engines


def test_a_handle_has_the_channel_of_the_request(make_engine: Callable[..., Any]) -> None:
    request = Ask(PROMPT, max_tokens=2).native()
    channel = request.stream_channels[0]
    handle = make_engine().submit(request)
    assert handle.stream() is channel
    assert handle.valid()
    assert handle.id > 0


def test_a_handle_outlives_its_engine(make_engine: Callable[..., Any], bundle: Path) -> None:
    engine = module.RequestEngine(str(bundle), options=runtime_options(threads=1))
    finished, running = engine.submit(Ask(PROMPT, max_tokens=2).native()), None
    finished.get()
    running = engine.submit(Ask(PROMPT, max_tokens=60, extensions={"ignore_eos": True}).native())
    del engine
    gc.collect()
    assert finished.ready()
    assert running.ready()
    running.cancel()


def test_several_sequences_are_refused(make_engine: Callable[..., Any]) -> None:
    request = Ask(PROMPT).native()
    for sequences in ([], request.requests * 2, to_encode().requests * 2):
        request.requests = sequences
        with pytest.raises(module.SubmitError, match="exactly one sequence"):
            make_engine().submit(request)


def test_a_stopped_engine_refuses(make_engine: Callable[..., Any]) -> None:
    engine = make_engine()
    engine.shutdown()
    engine.shutdown(mode=module.ShutdownMode.CANCEL)
    assert not engine.running
    with pytest.raises(module.SubmitError, match="shutting down"):
        engine.submit(Ask(PROMPT).native())


def test_an_engine_tells_what_runs_it(make_engine: Callable[..., Any]) -> None:
    engine = make_engine()
    engine.submit(Ask(PROMPT, max_tokens=3).native()).get()
    info = engine.executor_info()
    assert info.name
    assert info.vocab_size > 0
    assert engine.steps_completed >= 3
    assert engine.get_context_cache_metrics() is None
    assert engine.get_prefill_metrics().computed_tokens == len(PROMPT)
    assert engine.get_prefill_metrics().get_total_runs() > 0
    assert engine.get_generation_metrics().generated_tokens == 3
    assert engine.metrics().submitted == 1


def test_cache_metrics_come_with_the_cache(bundle: Path) -> None:
    cache = module.ContextCacheConfig()
    cache.enabled = True
    engine = module.RequestEngine(str(bundle), context_cache_config=cache, options=runtime_options(threads=1))
    runtime = module.LLMRuntime(str(bundle), context_cache_config=cache, options=runtime_options(threads=1))
    for metrics in (engine.get_context_cache_metrics(), runtime.get_context_cache_metrics()):
        assert metrics.base_kv_pages.capacity > 0
    assert module.LLMRuntime(str(bundle), options=runtime_options(threads=1)).get_context_cache_metrics() is None


def test_scores_are_an_array_of_every_position(bundle: Path) -> None:
    runtime = module.LLMRuntime(str(bundle), options=runtime_options(threads=1))
    logits = runtime.score(PROMPT)
    assert (logits.dtype, logits.shape) == (np.float32, (len(PROMPT), runtime.executor_info().vocab_size))
    kept = logits.copy()
    del runtime
    gc.collect()
    np.testing.assert_array_equal(logits, kept)


def test_embeddings_come_when_asked_for(bundle: Path) -> None:
    runtime = module.LLMRuntime(str(bundle), options=runtime_options(threads=1))
    response = runtime.handle_request(Ask(PROMPT, extensions={"embeddings": True}).native())
    assert len(response.embeddings[0]) == runtime.executor_info().hidden_size


# What this runtime does not have


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"multimodal_engine_dir": "/nowhere"}, "/nowhere/visual/visual.gguf"),
        ({"lora_weights_map": {"a": "b"}}, "lora_weights_map: .* no LoRA adapters yet"),
    ],
)
@pytest.mark.parametrize("kind", ["RequestEngine", "LLMRuntime"])
def test_arguments_that_cannot_be_honoured_are_named(
    kind: str, arguments: dict[str, Any], name: str, bundle: Path
) -> None:
    with pytest.raises(RuntimeError, match=name):
        getattr(module, kind)(str(bundle), **arguments)


def test_speculation_and_speech_are_refused_by_name(bundle: Path) -> None:
    with pytest.raises(RuntimeError, match="no speculative decoding yet"):
        module.LLMRuntime(str(bundle), "", {}, 4, 2, 8)
    with pytest.raises(RuntimeError, match="TTSRuntime: the native runtime has no speech models yet"):
        module.TTSRuntime("talker", "predictor", "codec")
    runtime = module.LLMRuntime(str(bundle), options=runtime_options(threads=1))
    channel, params = module.AudioStreamChannel(), module.OmniAudioParams()
    with pytest.raises(RuntimeError, match="load_omni: the native runtime has no speech models yet"):
        runtime.load_omni("talker", "predictor", "codec", "tokenizer")
    with pytest.raises(RuntimeError, match="handle_request_tts"):
        runtime.handle_request_tts("hello", params, channel)
    with pytest.raises(RuntimeError, match="handle_request_streaming_audio"):
        runtime.handle_request_streaming_audio(to_encode(), channel, params)
    with pytest.raises(RuntimeError, match=r"save_system_prompt_kv_cache: .* context_cache_config\.enabled"):
        runtime.save_system_prompt_kv_cache("be brief")
    assert runtime.get_speaker_names() == []
    assert not runtime.has_draft_model()
    assert not runtime.capture_decoding_cuda_graph()
    assert runtime.get_multimodal_metrics().get_total_runs() == 0
    assert runtime.get_spec_decode_generation_metrics().total_iterations == 0
    assert runtime.get_eagle_generation_metrics().get_total_runs() == 0


@pytest.mark.parametrize(
    ("field", "make", "cause"),
    [
        ("image_buffers", module.ImageData, "this model takes no images"),
        ("audio_buffers", module.AudioData, "the native runtime has no audio models yet"),
    ],
)
def test_media_in_a_request_is_refused_by_field(
    field: str, make: Callable[[], Any], cause: str, make_engine: Callable[..., Any]
) -> None:
    request = Ask(PROMPT).native()
    setattr(request.requests[0], field, [make()])
    with pytest.raises(module.InvalidRequest, match=rf"requests\[0\]\.{field}: {cause}"):
        make_engine().submit(request)


def test_a_channel_of_none_is_refused_by_field(make_engine: Callable[..., Any]) -> None:
    request = Ask(PROMPT).native()
    request.stream_channels = [None]
    with pytest.raises(module.InvalidRequest, match=r"stream_channels\[0\] is None"):
        make_engine().submit(request)


# The GIL


@pytest.fixture
def no_voluntary_switches() -> Iterator[None]:
    """Threads switch only where one releases the GIL by itself."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(NEVER_SECONDS)
    yield
    sys.setswitchinterval(interval)


def other_threads_run_during(call: Callable[[], object]) -> bool:
    """Whether a thread that only waits for the GIL gets it during the call; tried again until the deadline."""
    steps, stopped = 0, threading.Event()

    def step() -> None:
        nonlocal steps
        while not stopped.is_set():
            steps += 1
            time.sleep(0)

    thread = threading.Thread(target=step)
    thread.start()
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        while time.monotonic() < deadline:
            before = steps
            call()
            if steps > before:
                return True
        return False
    finally:
        stopped.set()
        thread.join()


@pytest.mark.usefixtures("no_voluntary_switches")
@pytest.mark.parametrize("call", ["construct", "destroy", "handle_request", "score", "get", "shutdown"])
def test_other_threads_run_during(call: str, bundle: Path, make_engine: Callable[..., Any]) -> None:
    options = runtime_options(threads=1)
    runtime, engine = module.LLMRuntime(str(bundle), options=options), make_engine()
    request = Ask(PROMPT, max_tokens=40, extensions={"ignore_eos": True}).native()
    several = [module.RequestEngine(str(bundle), options=options)]

    def destroy_one() -> None:
        other_threads_run_until_made = module.RequestEngine(str(bundle), options=options)
        other_threads_run_until_made.submit(request)
        several[:] = [other_threads_run_until_made]

    calls: dict[str, Callable[[], object]] = {
        "construct": lambda: module.RequestEngine(str(bundle), options=options),
        "destroy": destroy_one,
        "handle_request": lambda: runtime.handle_request(request),
        "score": lambda: runtime.score(PROMPT * 8),
        "get": lambda: engine.submit(request).get(),
        "shutdown": engine.shutdown,
    }
    assert other_threads_run_during(calls[call])


@pytest.mark.usefixtures("no_voluntary_switches")
def test_the_engine_finishes_a_request_while_python_holds_the_gil(make_engine: Callable[..., Any]) -> None:
    """Nothing here releases the GIL: an engine that wanted it, even to drop the request, would never be ready."""
    engine = make_engine(prompt_encoder=lambda _request, _index: PROMPT)
    handle = engine.submit(to_encode(max_tokens=8))
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not handle.ready() and time.monotonic() < deadline:
        pass
    assert handle.ready()


# Lifetimes


class Owner:
    """Refers to its engine, which refers back to it through the encoder."""

    def __init__(self, bundle: Path, kind: str) -> None:
        self.options = runtime_options(threads=1, prompt_encoder=self.encode)
        self.runtime = getattr(module, kind)(str(bundle), options=self.options)

    def encode(self, _request: Any, _index: int) -> list[int]:
        return PROMPT


@pytest.mark.parametrize("kind", ["RequestEngine", "LLMRuntime"])
def test_a_ring_of_engine_and_encoder_is_collected(kind: str, bundle: Path) -> None:
    owner = weakref.ref(Owner(bundle, kind))
    gc.collect()
    assert owner() is None


def test_an_encoder_lives_as_long_as_its_engine(bundle: Path) -> None:
    def encode(_request: Any, _index: int) -> list[int]:
        return PROMPT

    engine = module.RequestEngine(str(bundle), options=runtime_options(threads=1, prompt_encoder=encode))
    reference = weakref.ref(encode)
    del encode
    gc.collect()
    assert engine.count_prompt_tokens(to_encode()) == [4]
    del engine
    gc.collect()
    assert reference() is None
