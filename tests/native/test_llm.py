"""LLM over the real native runtime and tiny checkpoints: what the Python API promises, on both paths."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.unit.runtime.waiting import InThread, wait_until

from edgellm import LLM, CompletionOutput, SamplingParams, load_model
from edgellm.engines.bundle_files import record_files
from edgellm.engines.gguf_file import read_gguf
from edgellm.engines.manifest import Manifest
from edgellm.engines.store import Store
from edgellm.errors import (
    BundleMismatchError,
    ClosedError,
    ConfigError,
    ContextLengthError,
    EngineMissingError,
    InvalidSchemaError,
    RequestError,
    UnsupportedParameterError,
)
from edgellm.runtime.generation import GenerationRequest, TextPrompt, TokenPrompt

CONTEXT_TOKENS = 1024
PROMPTS = ("the cat", "a longer question about the weather, with more words", "ünïcödé 日本語 🙂", "x")
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
SEEDED = SamplingParams(temperature=1.0, top_p=1.0, top_k=0, seed=7, max_tokens=12, ignore_eos=True)

MakeLLM = Callable[..., LLM]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("checkpoints")

    def write(variant: str) -> Path:
        folder = root / variant
        return folder if folder.exists() else write_checkpoint(folder, VARIANTS[variant])

    return write


@pytest.fixture(scope="module")
def make_llm(checkpoints: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeLLM]:
    """Every model it makes is closed at the end."""
    cache = tmp_path_factory.mktemp("cache")
    made: list[LLM] = []

    def make(variant: str = "llama", **options: Any) -> LLM:
        options = {"runtime": "native", "threads": 1, "quantisation": "f32"} | options
        made.append(LLM(str(checkpoints(variant)), cache_dir=str(cache), **options))
        return made[-1]

    yield make
    for llm in made:
        llm.close()


@pytest.fixture(scope="module")
def llm(make_llm: MakeLLM) -> LLM:
    return make_llm()


@pytest.fixture(scope="module", params=[True, False], ids=["in flight", "blocking"])
def either(request: pytest.FixtureRequest, make_llm: MakeLLM) -> LLM:
    return make_llm(enable_in_flight_batching=request.param)


def conversation(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def streamed(llm: LLM, text: str, params: SamplingParams) -> CompletionOutput:
    """The deltas of a stream, put together."""
    deltas = list(llm.generate_stream(conversation(text), params))
    assert [delta.finished for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    return CompletionOutput(
        text="".join(delta.text for delta in deltas),
        token_ids=[token_id for delta in deltas for token_id in delta.token_ids],
        prompt_tokens=deltas[-1].prompt_tokens,
        finish_reason=deltas[-1].finish_reason,
    )


def same(one: CompletionOutput, other: CompletionOutput) -> bool:
    return (one.text, one.token_ids, one.prompt_tokens, one.finish_reason) == (
        other.text,
        other.token_ids,
        other.prompt_tokens,
        other.finish_reason,
    )


@pytest.mark.parametrize("params", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_generate_chat_and_stream_give_the_same(either: LLM, params: SamplingParams) -> None:
    for prompt in PROMPTS:
        (whole,) = either.generate(prompt, params)
        assert same(whole, either.chat(conversation(prompt), params))
        assert same(whole, streamed(either, prompt, params))
        assert len(whole.token_ids) == params.max_tokens
        assert whole.finish_reason == "length"


@pytest.mark.parametrize("variant", ["llama", "llama-llama3-rope", "mistral", "qwen2", "qwen3"])
def test_both_paths_give_the_same_for_every_family(make_llm: MakeLLM, variant: str) -> None:
    in_flight, blocking = make_llm(variant), make_llm(variant, enable_in_flight_batching=False)
    for prompt in PROMPTS:
        assert same(in_flight.generate(prompt, GREEDY)[0], blocking.generate(prompt, GREEDY)[0])


@pytest.mark.parametrize("params", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_prompts_together_give_what_each_gives_alone(llm: LLM, params: SamplingParams) -> None:
    prompts = [f"{prompt} {number}" for number in range(4) for prompt in PROMPTS]
    alone = [llm.generate(prompt, params)[0] for prompt in prompts]
    together = llm.generate(prompts, params)
    assert all(same(one, other) for one, other in zip(alone, together, strict=True))


def test_a_seed_makes_a_run_repeatable_and_without_one_runs_differ(llm: LLM) -> None:
    hot = SamplingParams(temperature=2, top_p=1, top_k=0, max_tokens=24, ignore_eos=True)
    assert len({tuple(llm.generate("hi", hot)[0].token_ids) for _ in range(4)}) > 1
    seeded = {tuple(llm.generate("hi", SEEDED)[0].token_ids) for _ in range(3)}
    assert len(seeded) == 1


def test_deltas_are_whole_code_points(llm: LLM) -> None:
    params = SamplingParams(temperature=2, top_p=1, top_k=0, max_tokens=48, ignore_eos=True, seed=3)
    deltas = list(llm.generate_stream("hi", params))
    whole = llm.generate("hi", params)[0]
    assert "".join(delta.text for delta in deltas) == whole.text
    assert whole.text.encode()
    assert len(whole.token_ids) == 48


def test_a_stop_string_ends_the_text_before_it(either: LLM) -> None:
    whole = either.generate("hi", GREEDY)[0].text
    assert len(whole) > 4
    stop = whole[3:5]
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, stop=["never there", stop])
    output = either.generate("hi", params)[0]
    assert output.text == whole[: whole.index(stop)]
    assert (output.finish_reason, output.matched_stop) == ("stop", 1)
    assert streamed(either, "hi", params).text == output.text


def test_a_bias_forces_a_token(either: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, logit_bias={"40": 100})
    assert either.generate("hi", params)[0].token_ids == [40, 40, 40]
    with pytest.raises(RequestError) as refusal:
        either.generate("hi", SamplingParams(logit_bias={either.capabilities.vocab_size: 1}))
    assert (refusal.value.param or "").startswith("logit_bias")


def test_logprobs_have_the_chosen_token_first_then_the_likeliest(either: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, num_logprobs=3)
    output = either.generate("hi", params)[0]
    assert output.logprobs is not None
    assert len(output.logprobs) == 4
    for token_id, entries in zip(output.token_ids, output.logprobs, strict=True):
        chosen, *likeliest = entries
        assert chosen.token_id == token_id
        assert len(likeliest) == 3
        assert likeliest[0].token_id == token_id
        assert [entry.logprob for entry in likeliest] == sorted((e.logprob for e in likeliest), reverse=True)
        assert chosen.logprob <= 0
        assert chosen.token == chosen.bytes.decode("utf-8", "replace")
    deltas = list(either.generate_stream("hi", params))
    steps = [entries for delta in deltas for entries in delta.logprobs or []]
    assert [entries[0].token_id for entries in steps] == output.token_ids
    assert either.generate("hi", GREEDY)[0].logprobs is None


@pytest.mark.parametrize(
    "params",
    [{"min_p": 0.5}, {"frequency_penalty": 2.0}, {"presence_penalty": 2.0}, {"repetition_penalty": 1.9}],
)
def test_extensions_have_an_effect(llm: LLM, params: dict[str, float]) -> None:
    sampling = {"temperature": 1.5, "top_p": 1.0, "top_k": 0, "seed": 5, "max_tokens": 40, "ignore_eos": True}
    plain = llm.generate("hi", SamplingParams(**sampling))[0]  # type: ignore[arg-type]
    changed = llm.generate("hi", SamplingParams(**sampling, **params))[0]  # type: ignore[arg-type]
    assert plain.token_ids != changed.token_ids


# Lengths


def test_max_tokens_beyond_the_room_is_fitted_and_ends_in_length(make_llm: MakeLLM) -> None:
    llm = make_llm(max_kv_cache_capacity=64)
    params = SamplingParams(temperature=0, max_tokens=1_000_000, ignore_eos=True)
    output = llm.generate("hi", params)[0]
    assert output.finish_reason == "length"
    assert output.prompt_tokens is not None
    assert output.prompt_tokens + len(output.token_ids) == 64


@pytest.mark.parametrize("in_flight", [True, False])
def test_a_prompt_without_room_names_the_limit_and_the_model_goes_on(make_llm: MakeLLM, in_flight: bool) -> None:
    llm = make_llm(max_input_len=40, max_kv_cache_capacity=64, enable_in_flight_batching=in_flight)
    long = "word " * 200
    with pytest.raises(ContextLengthError, match=r"40 tokens \(max_input_len\)"):
        llm.generate(long)
    with pytest.raises(ContextLengthError):
        next(llm.generate_stream(long))
    assert llm.generate("hi", GREEDY)[0].token_ids


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"max_kv_cache_capacity": 4}, "max_kv_cache_capacity 4"),
        ({"max_input_len": 4}, "max_input_len 4"),
        ({"max_input_len": 4, "max_kv_cache_capacity": 64}, "max_input_len 4"),
    ],
)
def test_limits_that_leave_no_room_for_any_chat_are_refused_at_the_start(
    make_llm: MakeLLM, limits: dict[str, int], named: str
) -> None:
    with pytest.raises(ConfigError, match=f"{named} is too small for this model: .* give at least ") as refusal:
        make_llm(**limits)
    needed = int(str(refusal.value).rpartition(" ")[2])
    name = named.partition(" ")[0]
    assert make_llm(**{**limits, name: needed}).chat([{"role": "user", "content": "x"}], GREEDY).token_ids
    with pytest.raises(ConfigError):
        make_llm(**{**limits, name: needed - 1})


def test_lengths_of_the_options_end_at_the_models_own(llm: LLM) -> None:
    capabilities = llm.capabilities
    assert (capabilities.max_input_len, capabilities.max_kv_cache_capacity) == (CONTEXT_TOKENS, CONTEXT_TOKENS)
    assert (capabilities.max_batch_size, capabilities.in_flight_batching, capabilities.context_cache) == (4, True, True)
    assert capabilities.executor


@pytest.mark.parametrize("executor", ["auto", "fused", "ggml"])
def test_the_executor_is_the_one_that_is_asked_for_and_the_log_says_why(
    make_llm: MakeLLM, executor: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "edgellm"):
        capabilities = make_llm(executor=executor).capabilities
    if executor == "auto":
        assert capabilities.executor in ("fused", "ggml")
        assert capabilities.executor_reason != "asked for"
    else:
        assert (capabilities.executor, capabilities.executor_reason) == (executor, "asked for")
    (said,) = [record.getMessage() for record in caplog.records if "runs on executor" in record.getMessage()]
    assert f"executor {capabilities.executor} ({capabilities.executor_device}): {capabilities.executor_reason}" in said


# Context cache


def test_a_second_turn_reuses_the_first_and_answers_as_if_cold(make_llm: MakeLLM) -> None:
    llm = make_llm(enable_context_reuse=True)
    cold_llm = make_llm(enable_context_reuse=False)
    turns = conversation("tell me " * 40)
    first = llm.chat(turns, GREEDY)
    turns += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "and then?"}]
    warm, cold = llm.chat(turns, GREEDY), cold_llm.chat(turns, GREEDY)
    assert same(warm, cold)
    assert first.prompt_tokens is not None
    assert warm.cached_tokens is not None
    assert warm.cached_tokens > first.prompt_tokens // 2
    assert not cold.cached_tokens
    bypass = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, reuse_context=False)
    assert not llm.chat(turns, bypass).cached_tokens
    metrics = llm.get_context_cache_metrics()
    assert metrics is not None
    assert metrics.reused_tokens >= warm.cached_tokens
    assert metrics.hit_sequences >= 1
    assert llm.context_cache_enabled
    assert cold_llm.get_context_cache_metrics() is None


def test_the_blocking_path_logs_reuse_once_a_request(make_llm: MakeLLM, caplog: pytest.LogCaptureFixture) -> None:
    llm = make_llm(enable_in_flight_batching=False)
    with caplog.at_level(logging.INFO):
        llm.generate(["the same prompt, long enough to fill a page of the store " * 3] * 2, GREEDY)
    lines = [record.getMessage() for record in caplog.records if "context reuse" in record.getMessage()]
    assert len(lines) == 2
    assert "hits=0/1" in lines[0]
    assert "hits=1/1" in lines[1]


# Cancellation and the end


def test_closing_a_stream_frees_its_seat(make_llm: MakeLLM) -> None:
    llm = make_llm(max_batch_size=1)
    stream = llm.generate_stream("hi", SamplingParams(temperature=0, max_tokens=900, ignore_eos=True))
    next(stream)
    stream.close()
    wait_until(lambda: (metrics := llm.get_scheduling_metrics()) is not None and metrics["resident"] == 0)
    metrics = llm.get_scheduling_metrics()
    assert metrics is not None
    assert (metrics["cancelled"], metrics["failed"]) == (1, 0)
    assert llm.generate("hi", GREEDY)[0].finish_reason == "length"


def test_closing_a_stream_on_the_blocking_path_lets_the_next_one_run(make_llm: MakeLLM) -> None:
    llm = make_llm(enable_in_flight_batching=False)
    stream = llm.generate_stream("hi", SamplingParams(temperature=0, max_tokens=900, ignore_eos=True))
    next(stream)
    stream.close()
    assert llm.generate("hi", GREEDY)[0].finish_reason == "length"


@pytest.mark.parametrize("in_flight", [True, False])
def test_close_lets_running_requests_end(make_llm: MakeLLM, in_flight: bool) -> None:
    llm = make_llm(enable_in_flight_batching=in_flight)
    stream = llm.generate_stream("hi", SamplingParams(temperature=0, max_tokens=64, ignore_eos=True))
    first = next(stream)
    InThread(llm.close).outcome()
    rest = list(stream)
    assert rest[-1].finish_reason == "length"
    assert sum(len(delta.token_ids) for delta in [first, *rest]) == 64
    with pytest.raises(ClosedError):
        llm.generate("hi")


def test_many_callers_share_the_engine(llm: LLM) -> None:
    expected = [llm.generate(prompt, GREEDY)[0] for prompt in PROMPTS]
    callers = [InThread(lambda: llm.generate(list(PROMPTS), GREEDY)) for _ in range(12)]
    for caller in callers:
        assert all(same(one, other) for one, other in zip(caller.outcome(), expected, strict=True))


# Prompts


def encoded(llm: LLM, request: GenerationRequest) -> Sequence[int]:
    ids = llm.loaded.encode(request).prompt_token_ids
    assert ids is not None
    return ids


def test_token_ids_and_text_are_prompts_too(llm: LLM) -> None:
    ids = encoded(llm, GenerationRequest(TextPrompt("once upon"), GREEDY))
    assert encoded(llm, GenerationRequest(TokenPrompt(ids), GREEDY)) == ids


def test_messages_without_ids_go_through_the_registered_encoder(make_llm: MakeLLM) -> None:
    """The contract's own way: messages in the request, tokenised on the submitting thread."""
    llm = make_llm("qwen2")
    whole = llm.generate("the cat", GREEDY)[0]
    module = llm.loaded.builder._module
    message = module.Message("user", [module.MessageContent("text", "the cat")])
    item = module.Request([message])
    item.extensions.ignore_eos = True
    native = module.LLMGenerationRequest()
    native.top_k, native.top_p, native.max_generate_length = 1, 1.0, 12
    native.requests = [item]
    native.stream_channels = [module.StreamChannel.create()]
    engine = llm.loaded.driver._engine  # type: ignore[attr-defined]
    assert engine.count_prompt_tokens(native) == [whole.prompt_tokens]
    response = engine.submit(native).get()
    assert response.output_ids == [whole.token_ids]


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "\ud800"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}],
        [{"role": "user", "content": [{"type": {"a": 1}}]}],
        [{"role": ["user"], "content": "x"}],
        [],
    ],
)
def test_bad_messages_are_refused_and_the_model_goes_on(either: LLM, messages: Any) -> None:
    with pytest.raises(RequestError) as refusal:
        either.chat(messages)
    assert (refusal.value.param or "").startswith("messages")
    assert either.generate("hi", GREEDY)[0].token_ids


# Guided decoding


def test_a_guide_is_enforced(either: LLM) -> None:
    if not either.capabilities.guided_decoding:
        with pytest.raises(UnsupportedParameterError):
            either.generate("hi", SamplingParams(guided_decoding={"regex": "a"}))
        return
    params = SamplingParams(temperature=0, max_tokens=40, guided_decoding={"choice": ["yes", "no"]})
    assert either.generate("hi", params)[0].text in ("yes", "no")
    digits = SamplingParams(temperature=0, max_tokens=40, guided_decoding={"regex": "[0-9]{3}"})
    text = either.generate("hi", digits)[0].text
    assert text.isdigit()
    assert len(text) == 3
    asks_for_nothing = {"json_schema": {"const": "a", "uniqueItems": False}}
    answer = either.generate("hi", SamplingParams(temperature=0, max_tokens=40, guided_decoding=asks_for_nothing))[0]
    assert json.loads(answer.text) == "a"
    for guide, param in (
        ({"regex": "[0-9"}, "guided_decoding.regex"),
        ({"json_schema": {"type": "array", "uniqueItems": True}}, "guided_decoding.json_schema.uniqueItems"),
        ({"json_schema": {"properties": {"a": {"$ref": "#/x"}}}}, "guided_decoding.json_schema.properties.a.$ref"),
    ):
        with pytest.raises(InvalidSchemaError) as refusal:
            either.generate("hi", SamplingParams(guided_decoding=guide))
        assert refusal.value.param == param
    assert either.generate("hi", GREEDY)[0].token_ids


# Loading


def test_the_id_is_the_folders_name_and_the_checkpoint_is_the_model_dir(
    checkpoints: Callable[[str], Path], tmp_path: Path
) -> None:
    with load_model(str(checkpoints("llama")), cache_dir=str(tmp_path), runtime="native", threads=1) as llm:
        assert isinstance(llm, LLM)
        assert llm.model_id == "llama"
        assert llm.model_dir == str(checkpoints("llama"))
        assert llm.bundle_dir.startswith(str(tmp_path))
        assert llm.bundle_layout.root == llm.bundle_dir


def test_a_gguf_file_is_known_by_its_stem(make_llm: MakeLLM, tmp_path: Path) -> None:
    from tests.models.tiny_gguf import write_gguf

    write_gguf(tmp_path / "little.Q8.gguf", VARIANTS["llama"], "Q8_0")
    with LLM(str(tmp_path / "little.Q8.gguf"), cache_dir=str(tmp_path / "cache"), runtime="native", threads=1) as llm:
        assert llm.model_id == "little.Q8"
        assert llm.generate("hi", GREEDY)[0].token_ids


def test_a_damaged_bundle_is_named_and_built_again(
    checkpoints: Callable[[str], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def answer() -> list[int]:
        with LLM(str(checkpoints("llama")), cache_dir=str(tmp_path), runtime="native", threads=1) as llm:
            return llm.generate("hi", GREEDY)[0].token_ids

    before = answer()
    (model_file,) = (tmp_path / "engines").glob("*/llm.gguf")
    model_file.write_bytes(model_file.read_bytes()[:-5000])
    assert answer() == before
    assert f"{model_file}: 448600 bytes, its manifest says 453600" in caplog.text


@pytest.mark.parametrize("quantisation", ["auto", "f32", "f16", "q8_0", "q4_1", "q4_0"])
@pytest.mark.parametrize("executor", ["auto", "ggml"])
def test_every_quantisation_is_built_loaded_and_generates(make_llm: MakeLLM, quantisation: str, executor: str) -> None:
    """Rows of both matrices are whole blocks, so that every type is really stored."""
    llm = make_llm("llama-untied", quantisation=quantisation, executor=executor)
    expected = "q8_0" if quantisation == "auto" else quantisation
    manifest = Manifest.read(Path(llm.bundle_dir) / "manifest.json")
    assert manifest.key.inputs["profile.quantisation"] == expected
    stored = read_gguf(Path(llm.bundle_dir) / "llm.gguf").tensors["blk.0.ffn_down.weight"].type.name.lower()
    assert stored == expected
    (output,) = llm.generate("hello world", SamplingParams(temperature=0.0, max_tokens=8))
    assert output.token_ids
    assert output.finish_reason in ("stop", "length")


def test_weights_of_another_checkpoint_are_not_bound(checkpoints: Callable[[str], Path], tmp_path: Path) -> None:
    """A bundle whose manifest vouches for every byte, of a checkpoint that is not the one it is named for."""
    with LLM(str(checkpoints("llama")), cache_dir=str(tmp_path), runtime="native", threads=1) as llm:
        bundle = Path(llm.bundle_dir)
    config = json.loads((bundle / "config.json").read_text())
    config["checkpoint_identity"]["digest"] = "f" * 64
    (bundle / "config.json").write_text(json.dumps(config))
    manifest = Manifest.read(bundle / "manifest.json")
    (bundle / "manifest.json").write_bytes(replace(manifest, files=record_files(bundle)).to_bytes())
    with pytest.raises(BundleMismatchError, match="made from checkpoint f"):
        LLM(str(checkpoints("llama")), cache_dir=str(tmp_path), runtime="native", threads=1)


def test_a_loaded_bundle_is_held_until_its_model_is_closed(checkpoints: Callable[[str], Path], tmp_path: Path) -> None:
    store = Store(tmp_path / "engines", ())
    with LLM(str(checkpoints("llama")), cache_dir=str(tmp_path), runtime="native", threads=1) as llm:
        assert store.clear().kept == {Path(llm.bundle_dir).name: "loaded by a running process"}
        assert llm.generate("hi", GREEDY)[0].token_ids
    assert [entry.name for entry in store.clear().removed] == [Path(llm.bundle_dir).name]


def test_a_missing_engine_is_refused_where_building_is_off(checkpoints: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(EngineMissingError, match="building is off here"):
        LLM(str(checkpoints("llama")), cache_dir=str(tmp_path), runtime="native", build_on_start=False)


def test_progress_tells_the_stages(checkpoints: Callable[[str], Path], tmp_path: Path) -> None:
    stages: list[str] = []
    LLM(
        str(checkpoints("llama")),
        cache_dir=str(tmp_path),
        runtime="native",
        threads=1,
        on_progress=lambda progress: stages.append(progress.stage),
    ).close()
    assert stages[-1] == "load"
    assert "lower" in stages
