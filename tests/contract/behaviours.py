"""What a runtime module does, as measured on NVIDIA's: the adapter relies on it, so both modules must do it.

Each behaviour is a function of the module under test that asserts. They run in a process of their own, on NVIDIA's
module and on edgellm._native alike (``inspect_module``).
"""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

Behaviour = Callable[[Any], None]
BEHAVIOURS: dict[str, Behaviour] = {}

LONE_SURROGATE = "\ud800"
WAIT_MILLISECONDS = 60_000
MAX_GUIDE_BYTES = 131_072


def behaviour(function: Behaviour) -> Behaviour:
    BEHAVIOURS[function.__name__] = function
    return function


def refused(kind: type[BaseException], action: Callable[[], object]) -> bool:
    try:
        action()
    except kind:
        return True
    return False


# Fields


@behaviour
def an_unknown_attribute_cannot_be_set(rt: Any) -> None:
    for kind in (rt.Request, rt.LLMGenerationRequest, rt.Message, rt.ContextCacheConfig, rt.OmniAudioParams):
        assert refused(AttributeError, lambda kind=kind: setattr(kind(), "unheard_of", 1))


@behaviour
def appending_to_a_list_that_a_getter_gave_is_lost(rt: Any) -> None:
    batch, request, message = rt.LLMGenerationRequest(), rt.Request(), rt.Message()
    batch.requests.append(request)
    batch.stream_channels.append(rt.StreamChannel.create())
    batch.tools.append(rt.ToolDefinition())
    request.messages.append(message)
    request.stop_strings.append("stop")
    request.logit_bias[1] = 1.0
    message.contents.append(rt.MessageContent("text", "hello"))
    assert batch.requests == []
    assert batch.stream_channels == []
    assert batch.tools == []
    assert request.messages == []
    assert request.stop_strings == []
    assert request.logit_bias == {}
    assert message.contents == []


@behaviour
def elements_of_a_list_are_live_references(rt: Any) -> None:
    batch, request, message = rt.LLMGenerationRequest(), rt.Request(), rt.Message()
    batch.requests = [request]
    batch.requests[0].stop_strings = ["stop"]
    assert batch.requests[0].stop_strings == ["stop"]
    batch.tools = [rt.ToolDefinition()]
    batch.tools[0].name = "weather"
    assert batch.tools[0].name == "weather"
    request.messages = [message]
    request.messages[0].role = "user"
    assert request.messages[0].role == "user"
    message.contents = [rt.MessageContent("text", "hello")]
    message.contents[0].content = "goodbye"
    assert message.contents[0].content == "goodbye"
    message.tool_calls = [rt.MessageToolCall()]
    message.tool_calls[0].name = "weather"
    assert message.tool_calls[0].name == "weather"
    request.image_buffers = [rt.ImageData()]
    request.image_buffers[0].fps = 2.0
    assert request.image_buffers[0].fps == 2.0
    request.audio_buffers = [rt.AudioData()]
    request.audio_buffers[0].sample_rate = 8000
    assert request.audio_buffers[0].sample_rate == 8000


@behaviour
def parts_of_an_object_are_live_references(rt: Any) -> None:
    batch, request = rt.LLMGenerationRequest(), rt.Request()
    batch.tool_choice.function_name = "weather"
    assert batch.tool_choice.function_name == "weather"
    request.guided_decoding = rt.GuidedDecodingParams(rt.GuideType.REGEX, "a+")
    request.guided_decoding.guide = "b+"
    assert request.guided_decoding.guide == "b+"
    request.guided_decoding = None
    assert request.guided_decoding is None


@behaviour
def assigning_a_list_copies_its_elements(rt: Any) -> None:
    batch, request = rt.LLMGenerationRequest(), rt.Request()
    request.stop_strings = ["mine"]
    batch.requests = [request, request]
    batch.requests[0].stop_strings = ["theirs"]
    assert request.stop_strings == ["mine"]
    assert batch.requests[1].stop_strings == ["mine"]
    guide = rt.GuidedDecodingParams(rt.GuideType.REGEX, "a+")
    request.guided_decoding = guide
    request.guided_decoding.guide = "b+"
    assert guide.guide == "a+"


@behaviour
def a_list_may_be_assigned_from_its_own_elements(rt: Any) -> None:
    batch, first, second = rt.LLMGenerationRequest(), rt.Request(), rt.Request()
    first.stop_strings, second.stop_strings = ["first"], ["second"]
    batch.requests = [first, second]
    batch.requests = batch.requests[::-1]
    assert [request.stop_strings for request in batch.requests] == [["second"], ["first"]]


@behaviour
def stream_channels_keep_their_identity(rt: Any) -> None:
    batch, channel = rt.LLMGenerationRequest(), rt.StreamChannel.create()
    batch.stream_channels = [channel]
    assert batch.stream_channels[0] is channel
    assert refused(TypeError, lambda: setattr(batch, "stream_channels", [rt.AudioStreamChannel()]))


@behaviour
def a_wrong_type_is_a_type_error(rt: Any) -> None:
    batch, request = rt.LLMGenerationRequest(), rt.Request()
    wrong = [
        (request, "stop_strings", "stop"),
        (request, "stop_strings", b"stop"),
        (request, "stop_strings", [1]),
        (request, "logit_bias", {"1": 1.0}),
        (request, "logit_bias", {1.0: 1.0}),
        (request, "logit_bias", [(1, 1.0)]),
        (request, "sampling_seed", 1.5),
        (request, "sampling_seed", "1"),
        (request, "messages", [{"role": "user", "content": "hello"}]),
        (request, "guided_decoding", {"type": "regex"}),
        (batch, "requests", None),
        (batch, "requests", [None]),
        (batch, "top_k", 1.5),
        (batch, "top_k", "1"),
        (batch, "top_k", None),
        (batch, "max_generate_length", 1.5),
        (batch, "temperature", "1"),
        (batch, "temperature", None),
        (batch, "apply_chat_template", "true"),
        (batch, "lora_weights_name", 1),
        (batch, "lora_weights_name", None),
        (batch, "tool_choice", "auto"),
        (batch, "context_cache_lookup_policy", 1),
        (rt.ToolChoice(), "mode", 1),
        (rt.ToolChoice(), "mode", "AUTO"),
        (rt.ToolChoice(), "mode", rt.FinishReason.LENGTH),
    ]
    for owner, field, value in wrong:
        assert refused(TypeError, lambda o=owner, f=field, v=value: setattr(o, f, v)), (field, value)
    assert refused(TypeError, lambda: rt.Message(None, []))
    assert refused(TypeError, lambda: rt.GuidedDecodingParams("EBNF"))


@behaviour
def a_number_out_of_range_is_a_type_error(rt: Any) -> None:
    batch, request = rt.LLMGenerationRequest(), rt.Request()
    out_of_range = [
        (request, "sampling_seed", -1),
        (request, "sampling_seed", 2**64),
        (request, "logit_bias", {2**31: 1.0}),
        (batch, "sampling_seed", -1),
        (batch, "sampling_seed", 2**64),
        (batch, "top_k", 2**63),
        (batch, "max_generate_length", 2**63),
        (batch, "num_logprobs", 2**31),
        (batch, "recurrent_capture_interval", 2**31),
        (batch, "context_cache_replay_tail_length", 2**31),
        (rt.ContextCacheConfig(), "max_records", 2**31),
    ]
    for owner, field, value in out_of_range:
        assert refused(TypeError, lambda o=owner, f=field, v=value: setattr(o, f, v)), (field, value)
    request.sampling_seed = 2**64 - 1
    assert request.sampling_seed == 2**64 - 1
    request.sampling_seed = None
    assert request.sampling_seed is None


@behaviour
def meaningless_numbers_pass_the_types(rt: Any) -> None:
    batch, cache = rt.LLMGenerationRequest(), rt.ContextCacheConfig()
    batch.top_k = batch.max_generate_length = batch.num_logprobs = -1
    batch.temperature = -1.0
    cache.max_records = -1
    assert (batch.top_k, batch.max_generate_length, batch.num_logprobs, batch.temperature) == (-1, -1, -1, -1.0)
    assert cache.max_records == -1


@behaviour
def sequences_of_any_kind_are_taken(rt: Any) -> None:
    request = rt.Request()
    for value in (("a", "b"), ["a", "b"], (text for text in "ab"), {"a": 1, "b": 2}.keys()):
        request.stop_strings = value
        assert request.stop_strings == ["a", "b"]


@behaviour
def a_lone_surrogate_is_a_type_error(rt: Any) -> None:
    texts = [
        (rt.Message(), ("role", "reasoning_content", "tool_call_id", "name")),
        (rt.MessageContent(), ("type", "content")),
        (rt.MessageToolCall(), ("id", "type", "name", "arguments")),
        (rt.ToolDefinition(), ("name", "description", "parameters")),
        (rt.ToolChoice(), ("function_name",)),
        (rt.GuidedDecodingParams(), ("guide",)),
        (rt.LLMGenerationRequest(), ("reasoning_effort", "lora_weights_name")),
    ]
    for owner, fields in texts:
        for field in fields:
            assert refused(TypeError, lambda o=owner, f=field: setattr(o, f, LONE_SURROGATE)), field
    assert refused(TypeError, lambda: setattr(rt.Request(), "stop_strings", [LONE_SURROGATE]))
    assert refused(TypeError, lambda: rt.create_text_message("user", LONE_SURROGATE))
    assert refused(TypeError, lambda: rt.GuidedDecodingParams(rt.GuideType.REGEX, LONE_SURROGATE))


@behaviour
def text_keeps_every_character(rt: Any) -> None:
    for text in ("", "a\0b", "naïve 你好 🙂", "\U0010ffff"):
        assert rt.MessageContent("text", text).content == text


@behaviour
def values_are_not_copied_by_accident(rt: Any) -> None:
    for kind in (rt.Request, rt.LLMGenerationRequest, rt.Message):
        assert refused(TypeError, lambda kind=kind: copy.copy(kind()))
        assert refused(TypeError, lambda kind=kind: pickle.dumps(kind()))


@behaviour
def read_only_fields_stay(rt: Any) -> None:
    fields = [
        (rt.StreamChunk(), "text", "x"),
        (rt.LLMGenerationResponse(), "finish_reasons", []),
        (rt.LLMGenerationResponse(), "prompt_token_counts", []),
        (rt.ImageData(), "width", 1),
        (rt.AudioData(), "num_samples", 1),
    ]
    for owner, field, value in fields:
        assert refused(AttributeError, lambda o=owner, f=field, v=value: setattr(o, f, v)), field


@behaviour
def what_a_runtime_makes_cannot_be_made_by_hand(rt: Any) -> None:
    for kind in (rt.StreamChannel, rt.RequestHandle, rt.LogprobEntry, rt.AudioChunk, rt.EngineMetrics):
        assert refused(TypeError, kind)
    for kind in (rt.ContextCacheMetrics, rt.ContextCachePoolMetrics, rt.LLMPrefillMetrics, rt.LLMGenerationMetrics):
        assert refused(TypeError, kind)


# Enums and errors


@behaviour
def an_enum_is_no_integer_and_converts_to_one(rt: Any) -> None:
    length = rt.FinishReason.LENGTH
    assert length != 2
    assert length == rt.FinishReason(2)
    assert (int(length), length.value, length.name) == (2, 2, "LENGTH")
    assert length != rt.GuideType.REGEX
    assert {length: "found"}[rt.FinishReason(2)] == "found"
    assert refused(TypeError, lambda: length < rt.FinishReason.ERROR)
    assert refused(TypeError, lambda: iter(rt.FinishReason))
    assert rt.FinishReason.__members__["LENGTH"] == length


@behaviour
def a_refused_submission_has_an_error_of_its_own(rt: Any) -> None:
    assert issubclass(rt.SubmitError, Exception)
    assert not issubclass(rt.SubmitError, RuntimeError)


@behaviour
def a_runtime_that_cannot_be_made_is_a_runtime_error(rt: Any) -> None:
    assert refused(RuntimeError, lambda: rt.LLMRuntime("/nonexistent"))
    assert refused(RuntimeError, lambda: rt.RequestEngine("/nonexistent"))
    assert refused(RuntimeError, lambda: rt.LLMRuntime("/nonexistent", "", {}, 4, 2, 8))
    assert refused(RuntimeError, lambda: rt.TTSRuntime("/nonexistent", "/nonexistent", "/nonexistent"))
    assert refused(TypeError, lambda: rt.RequestEngine("/nonexistent", max_batch_size=2**31))


@behaviour
def media_that_cannot_be_decoded_is_a_runtime_error(rt: Any) -> None:
    assert refused(RuntimeError, lambda: rt.load_image_from_path("/nonexistent"))
    assert refused(RuntimeError, lambda: rt.load_image_from_bytes(b""))
    assert refused(RuntimeError, lambda: rt.load_video_from_paths([]))
    assert refused(RuntimeError, lambda: rt.load_audio_buffer_from_bytes(b"no audio"))
    assert refused(ValueError, lambda: rt.extract_mel_to_numpy(b"", "unheard of"))
    assert refused(TypeError, lambda: rt.load_audio_buffer_from_bytes(1))


# Channels


def _channels(rt: Any) -> list[Any]:
    return [rt.StreamChannel.create(), rt.AudioStreamChannel()]


@behaviour
def a_new_channel_is_empty_and_open(rt: Any) -> None:
    for channel in _channels(rt):
        assert channel.try_pop() is None
        assert channel.wait_pop(0) is None
        assert channel.wait_pop(-1) is None
        assert not channel.is_finished()
        assert not channel.is_cancelled()


@behaviour
def cancelling_wakes_a_waiting_reader(rt: Any) -> None:
    for channel in _channels(rt):
        popped: list[object] = []
        reader = threading.Thread(target=lambda c=channel, p=popped: p.append(c.wait_pop(WAIT_MILLISECONDS)))
        reader.start()
        time.sleep(0.05)
        channel.cancel()
        reader.join(WAIT_MILLISECONDS / 2000)
        assert not reader.is_alive()
        assert popped == [None]


@behaviour
def a_cancelled_channel_is_neither_finished_nor_has_a_reason(rt: Any) -> None:
    for channel in _channels(rt):
        channel.cancel()
        channel.cancel()
        assert channel.is_cancelled()
        assert not channel.is_finished()
        assert channel.wait_pop(WAIT_MILLISECONDS) is None
        assert channel.try_pop() is None
    channel = rt.StreamChannel.create()
    channel.cancel()
    assert channel.get_reason() == rt.FinishReason.NOT_FINISHED


@behaviour
def waiting_lasts_and_lets_other_threads_run(rt: Any) -> None:
    for channel in _channels(rt):
        running, steps = threading.Event(), 0
        running.set()

        def work(running: threading.Event = running) -> None:
            nonlocal steps
            while running.is_set():
                steps += 1
                time.sleep(0.001)

        worker = threading.Thread(target=work)
        worker.start()
        try:
            before, started = steps, time.monotonic()
            channel.wait_pop(timeout_ms=200)
            waited, made = time.monotonic() - started, steps - before
        finally:
            running.clear()
            worker.join()
        assert waited > 0.19
        assert made > 1


@behaviour
def a_stream_interval_below_one_acts_as_one(rt: Any) -> None:
    channel = rt.StreamChannel.create()
    assert channel.get_stream_interval() == 1
    channel.set_stream_interval(n=7)
    assert channel.get_stream_interval() == 7
    for below in (0, -1):
        channel.set_stream_interval(below)
        assert channel.get_stream_interval() == 1
    assert refused(TypeError, lambda: channel.set_stream_interval(2**31))
    assert refused(TypeError, lambda: channel.wait_pop(1.5))


@behaviour
def a_channel_says_whether_it_skips_special_tokens(rt: Any) -> None:
    channel = rt.StreamChannel.create()
    assert channel.get_skip_special_tokens() is True
    channel.set_skip_special_tokens(skip=False)
    assert channel.get_skip_special_tokens() is False


# Guides


def _guide_verdict(rt: Any, kind: str, guide: str) -> tuple[bool, str]:
    verdict: tuple[bool, str] = rt.validate_guided_decoding_params(
        params=rt.GuidedDecodingParams(getattr(rt.GuideType, kind.upper()), guide)
    )
    return verdict


@behaviour
def a_sound_guide_passes(rt: Any) -> None:
    sound = [
        ("json_object", ""),
        ("json_schema", '{"type": "object", "properties": {"a": {"type": "integer"}}}'),
        ("json_schema", "true"),
        ("json_schema", " [ ] "),
        ("json_schema", '{"not": {}, "if": {}, "oneOf": [], "$ref": "#/nowhere"}'),
        ("json_schema", '{"format": "date", "minProperties": 1}'),
        ("json_schema", '{"const": "\\ud83d\\ude42\\u0041", "minimum": -0.5e+3}'),
        ("regex", "[0-9]+"),
        ("ebnf", 'root ::= "a"'),
        ("structural_tag", "{}"),
        ("choice", '["a", ""]'),
    ]
    for kind, guide in sound:
        assert _guide_verdict(rt, kind, guide) == (True, ""), (kind, guide)


@behaviour
def syntax_of_regex_and_ebnf_is_left_to_the_runtime(rt: Any) -> None:
    assert _guide_verdict(rt, "regex", "[0-9") == (True, "")
    assert _guide_verdict(rt, "ebnf", "no grammar") == (True, "")


@behaviour
def a_guide_that_is_no_json_is_refused(rt: Any) -> None:
    for kind in ("json_schema", "structural_tag", "choice"):
        for guide in ("{", "[1,]", '{"a": 1,}', "{} {}", "{'a': 1}", '{"a": NaN}', "// {}", "01", '"\\ud800"', '"\n"'):
            valid, reason = _guide_verdict(rt, kind, guide)
            assert not valid, (kind, guide)
            assert f"guided_decoding.{kind}" in reason


@behaviour
def keywords_that_no_grammar_enforces_are_refused_by_name(rt: Any) -> None:
    for keyword in ("uniqueItems", "contains", "minContains", "maxContains"):
        for schema in (
            f'{{"{keyword}": 1}}',
            f'{{"properties": {{"a": {{"items": [{{"{keyword}": false}}]}}}}}}',
            f'{{"anyOf": [{{"$defs": {{"a": {{"{keyword}": {{}}}}}}}}]}}',
            f'{{"properties": {{"properties": {{"{keyword}": 1}}}}}}',
        ):
            valid, reason = _guide_verdict(rt, "json_schema", schema)
            assert not valid, schema
            assert f"'{keyword}'" in reason


@behaviour
def a_property_may_be_named_like_a_keyword(rt: Any) -> None:
    for names in ("properties", "$defs", "definitions", "dependentSchemas"):
        assert _guide_verdict(rt, "json_schema", f'{{"{names}": {{"contains": {{"type": "integer"}}}}}}')[0], names


@behaviour
def an_empty_guide_is_refused(rt: Any) -> None:
    for kind in ("json_schema", "regex", "ebnf", "structural_tag", "choice"):
        valid, reason = _guide_verdict(rt, kind, "")
        assert not valid
        assert f"guided_decoding.{kind}" in reason


@behaviour
def choices_are_a_list_of_strings(rt: Any) -> None:
    for guide in ("[]", '["a", 1]', '{"a": 1}', '"a"', '[["a"]]', "[null]", '["a", {}]'):
        valid, reason = _guide_verdict(rt, "choice", guide)
        assert not valid, guide
        assert "guided_decoding.choice" in reason


@behaviour
def an_oversized_guide_is_refused(rt: Any) -> None:
    padding = "x" * (MAX_GUIDE_BYTES - len('""'))
    assert _guide_verdict(rt, "json_schema", f'"{padding}"') == (True, "")
    for kind in ("json_object", "json_schema", "regex", "ebnf", "structural_tag", "choice"):
        valid, reason = _guide_verdict(rt, kind, f'"{padding}x"')
        assert not valid
        assert f"guided_decoding.{kind} is too large" in reason


@behaviour
def a_deep_guide_does_not_harm(rt: Any) -> None:
    depth = 5_000
    assert _guide_verdict(rt, "json_schema", '{"a":' * depth + "1" + "}" * depth)[0]
    assert not _guide_verdict(rt, "choice", "[" * depth + "]" * depth)[0]


# Functions


@behaviour
def a_made_request_has_what_it_was_given(rt: Any) -> None:
    conversations = [[rt.create_text_message("user", "hello")], [rt.create_text_message(role="user", text="goodbye")]]
    guide = rt.GuidedDecodingParams(rt.GuideType.REGEX, "a+")
    batch = rt.create_generation_request(
        conversations, top_k=3, logit_bias={3: 1.5}, num_logprobs=2, guided_decoding=guide, enable_thinking=True
    )
    assert [request.messages[0].contents[0].content for request in batch.requests] == ["hello", "goodbye"]
    assert [request.messages[0].contents[0].type for request in batch.requests] == ["text", "text"]
    assert [request.messages[0].role for request in batch.requests] == ["user", "user"]
    assert [request.logit_bias for request in batch.requests] == [{3: 1.5}, {3: 1.5}]
    assert [request.guided_decoding.guide for request in batch.requests] == ["a+", "a+"]
    assert (batch.temperature, round(batch.top_p, 6), batch.top_k) == (1.0, 0.8, 3)
    assert (batch.max_generate_length, batch.num_logprobs) == (256, 2)
    assert (batch.apply_chat_template, batch.add_generation_prompt, batch.enable_thinking) == (True, True, True)
    assert batch.stream_channels == []


@behaviour
def profiling_can_be_switched(rt: Any) -> None:
    assert rt.get_profiling_enabled() is False
    rt.set_profiling_enabled(enabled=True)
    assert rt.get_profiling_enabled() is True
    rt.set_profiling_enabled(False)
    assert rt.get_profiling_enabled() is False


@behaviour
def a_reference_keeps_its_owner_alive(rt: Any) -> None:
    batch, request = rt.LLMGenerationRequest(), rt.Request()
    request.stop_strings = ["stop"]
    batch.requests = [request]
    reference = batch.requests[0]
    del batch, request
    gc.collect()
    assert reference.stop_strings == ["stop"]
