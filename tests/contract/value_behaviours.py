"""Fields of value types: lists, references, types and ranges."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

from tests.contract.behaviours import Behaviours, refused

VALUES = Behaviours()

LONE_SURROGATE = "\ud800"


@VALUES
def an_unknown_attribute_cannot_be_set(rt: Any) -> None:
    for kind in (rt.Request, rt.LLMGenerationRequest, rt.Message, rt.ContextCacheConfig, rt.OmniAudioParams):
        assert refused(AttributeError, lambda kind=kind: setattr(kind(), "unheard_of", 1))


@VALUES
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


@VALUES
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


@VALUES
def parts_of_an_object_are_live_references(rt: Any) -> None:
    batch, request = rt.LLMGenerationRequest(), rt.Request()
    batch.tool_choice.function_name = "weather"
    assert batch.tool_choice.function_name == "weather"
    request.guided_decoding = rt.GuidedDecodingParams(rt.GuideType.REGEX, "a+")
    request.guided_decoding.guide = "b+"
    assert request.guided_decoding.guide == "b+"
    request.guided_decoding = None
    assert request.guided_decoding is None


@VALUES
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


@VALUES
def a_list_may_be_assigned_from_its_own_elements(rt: Any) -> None:
    batch, first, second = rt.LLMGenerationRequest(), rt.Request(), rt.Request()
    first.stop_strings, second.stop_strings = ["first"], ["second"]
    batch.requests = [first, second]
    batch.requests = batch.requests[::-1]
    assert [request.stop_strings for request in batch.requests] == [["second"], ["first"]]


@VALUES
def stream_channels_keep_their_identity(rt: Any) -> None:
    batch, channel = rt.LLMGenerationRequest(), rt.StreamChannel.create()
    batch.stream_channels = [channel]
    assert batch.stream_channels[0] is channel
    assert refused(TypeError, lambda: setattr(batch, "stream_channels", [rt.AudioStreamChannel()]))


@VALUES
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


@VALUES
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


@VALUES
def meaningless_numbers_pass_the_types(rt: Any) -> None:
    batch, cache = rt.LLMGenerationRequest(), rt.ContextCacheConfig()
    batch.top_k = batch.max_generate_length = batch.num_logprobs = -1
    batch.temperature = -1.0
    cache.max_records = -1
    assert (batch.top_k, batch.max_generate_length, batch.num_logprobs, batch.temperature) == (-1, -1, -1, -1.0)
    assert cache.max_records == -1


@VALUES
def sequences_of_any_kind_are_taken(rt: Any) -> None:
    request = rt.Request()
    for value in (("a", "b"), ["a", "b"], (text for text in "ab"), {"a": 1, "b": 2}.keys()):
        request.stop_strings = value
        assert request.stop_strings == ["a", "b"]


@VALUES
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


@VALUES
def text_keeps_every_character(rt: Any) -> None:
    for text in ("", "a\0b", "naïve 你好 🙂", "\U0010ffff"):
        assert rt.MessageContent("text", text).content == text


@VALUES
def values_are_not_copied_by_accident(rt: Any) -> None:
    for kind in (rt.Request, rt.LLMGenerationRequest, rt.Message):
        assert refused(TypeError, lambda kind=kind: copy.copy(kind()))
        assert refused(TypeError, lambda kind=kind: pickle.dumps(kind()))


@VALUES
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


@VALUES
def what_a_runtime_makes_cannot_be_made_by_hand(rt: Any) -> None:
    for kind in (rt.StreamChannel, rt.RequestHandle, rt.LogprobEntry, rt.AudioChunk, rt.EngineMetrics):
        assert refused(TypeError, kind)
    for kind in (rt.ContextCacheMetrics, rt.ContextCachePoolMetrics, rt.LLMPrefillMetrics, rt.LLMGenerationMetrics):
        assert refused(TypeError, kind)


@VALUES
def a_reference_keeps_its_owner_alive(rt: Any) -> None:
    batch, request = rt.LLMGenerationRequest(), rt.Request()
    request.stop_strings = ["stop"]
    batch.requests = [request]
    reference = batch.requests[0]
    del batch, request
    gc.collect()
    assert reference.stop_strings == ["stop"]
