"""Enums, errors and functions of the module itself."""

from __future__ import annotations

from typing import Any

from tests.contract.behaviours import Behaviours, refused

MODULE = Behaviours()


@MODULE
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


@MODULE
def a_refused_submission_has_an_error_of_its_own(rt: Any) -> None:
    assert issubclass(rt.SubmitError, Exception)
    assert not issubclass(rt.SubmitError, RuntimeError)


@MODULE
def a_runtime_that_cannot_be_made_is_a_runtime_error(rt: Any) -> None:
    assert refused(RuntimeError, lambda: rt.LLMRuntime("/nonexistent"))
    assert refused(RuntimeError, lambda: rt.RequestEngine("/nonexistent"))
    assert refused(RuntimeError, lambda: rt.LLMRuntime("/nonexistent", "", {}, 4, 2, 8))
    assert refused(RuntimeError, lambda: rt.TTSRuntime("/nonexistent", "/nonexistent", "/nonexistent"))
    assert refused(TypeError, lambda: rt.RequestEngine("/nonexistent", max_batch_size=2**31))


@MODULE
def media_that_cannot_be_decoded_is_a_runtime_error(rt: Any) -> None:
    assert refused(RuntimeError, lambda: rt.load_image_from_path("/nonexistent"))
    assert refused(RuntimeError, lambda: rt.load_image_from_bytes(b""))
    assert refused(RuntimeError, lambda: rt.load_video_from_paths([]))
    assert refused(RuntimeError, lambda: rt.load_audio_buffer_from_bytes(b"no audio"))
    assert refused(ValueError, lambda: rt.extract_mel_to_numpy(b"", "unheard of"))
    assert refused(TypeError, lambda: rt.load_audio_buffer_from_bytes(1))


@MODULE
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


@MODULE
def profiling_can_be_switched(rt: Any) -> None:
    assert rt.get_profiling_enabled() is False
    rt.set_profiling_enabled(enabled=True)
    assert rt.get_profiling_enabled() is True
    rt.set_profiling_enabled(False)
    assert rt.get_profiling_enabled() is False
