"""Prompt front ends: ids made once, answers fitted to the room, no room said with its limit."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.runtime.scripted_model import LONGEST_WORD_BYTES, VOCAB_SIZE, WordCodec
from tests.unit.runtime.scripted_runtime import ScriptedModule

from edgellm.errors import ContextLengthError, RequestError, UnsupportedParameterError
from edgellm.runtime.generation import ChatPrompt, GenerationRequest, TextPrompt, TokenPrompt
from edgellm.runtime.length_limits import LengthLimits
from edgellm.runtime.prompt_front_end import MeasuringFrontEnd, TokenisingFrontEnd, prompt_bytes
from edgellm.runtime.sampling_params import SamplingParams

LIMITS = LengthLimits(max_input_len=10, max_kv_cache_capacity=16)
USER = [{"role": "user", "content": "one two"}]


def words(count: int) -> TextPrompt:
    return TextPrompt("word " * count)


def tokenising(codec: WordCodec | None = None) -> TokenisingFrontEnd:
    return TokenisingFrontEnd(codec or WordCodec(), LIMITS, VOCAB_SIZE)


def ask(prompt: Any, **params: Any) -> GenerationRequest:
    return GenerationRequest(prompt, SamplingParams(**params))


def test_ids_are_filled_and_the_answer_is_fitted() -> None:
    encoded = tokenising().encode(ask(words(10), max_tokens=100_000))
    assert encoded.prompt_token_ids == [4] * 10
    assert encoded.params.max_tokens == 6
    assert tokenising().encode(ask(words(10), max_tokens=6)).params.max_tokens == 6
    assert tokenising().encode(ask(words(10), max_tokens=5)).params.max_tokens == 5


def test_a_prompt_over_the_input_limit_names_it_with_the_numbers() -> None:
    with pytest.raises(
        ContextLengthError, match=r"11 tokens, and its answer may have up to 7 more; .* 10 tokens \(max_input_len\)"
    ) as refusal:
        tokenising().encode(ask(words(11), max_tokens=7))
    assert refusal.value.param == "prompt"


LONG = "w" * (LIMITS.max_input_len * LONGEST_WORD_BYTES)


@pytest.mark.parametrize(
    "prompt",
    [
        lambda text: TextPrompt(text),
        lambda text: ChatPrompt([{"role": "user", "content": text}]),
        lambda text: ChatPrompt([{"role": "user", "content": text}], apply_chat_template=False),
    ],
)
def test_a_prompt_that_must_be_too_long_is_refused_before_it_is_tokenised(prompt: Any) -> None:
    codec = WordCodec()
    tokenising(codec).encode(ask(prompt(LONG)))
    assert codec.encoded == [LONG]
    with pytest.raises(ContextLengthError, match=r"at least 11 tokens.* 10 tokens \(max_input_len\)"):
        tokenising(codec).encode(ask(prompt(LONG + "w")))
    assert codec.encoded == [LONG]


def test_too_many_ids_are_refused_before_each_is_looked_at() -> None:
    with pytest.raises(ContextLengthError, match="11 tokens"):
        tokenising().encode(ask(TokenPrompt([-1] * 11)))


def test_a_prompt_that_fills_the_kv_store_names_it() -> None:
    limits = LengthLimits(max_input_len=16, max_kv_cache_capacity=16)
    front_end = TokenisingFrontEnd(WordCodec(), limits, VOCAB_SIZE)
    assert front_end.encode(ask(words(15))).params.max_tokens == 1
    with pytest.raises(ContextLengthError, match="max_kv_cache_capacity") as refusal:
        front_end.encode(ask(ChatPrompt([{"role": "user", "content": "w " * 16}])))
    assert refusal.value.param == "messages"


def test_a_request_that_brings_ids_is_only_fitted() -> None:
    request = GenerationRequest(ChatPrompt(USER), SamplingParams(), prompt_token_ids=[1, 2, 3])
    codec = WordCodec()
    encoded = tokenising(codec).encode(request)
    assert (encoded.prompt_token_ids, encoded.params.max_tokens, codec.chats) == ([1, 2, 3], 13, [])


@pytest.mark.parametrize("ids", [[-1], [VOCAB_SIZE], [True], ["1"], [1.0]])
def test_ids_are_checked_against_the_vocabulary(ids: list[Any]) -> None:
    assert tokenising().encode(ask(TokenPrompt([0, VOCAB_SIZE - 1]))).prompt_token_ids == [0, VOCAB_SIZE - 1]
    with pytest.raises(RequestError, match="999"):
        tokenising().encode(ask(TokenPrompt(ids)))


@pytest.mark.parametrize("prompt", [TextPrompt(""), TokenPrompt([])])
def test_an_empty_prompt_is_refused(prompt: Any) -> None:
    with pytest.raises(RequestError, match="empty"):
        tokenising().encode(ask(prompt))


def test_a_chat_goes_to_the_codec_as_it_came() -> None:
    codec = WordCodec()
    tool = {"type": "function", "function": {"name": "f"}}
    prompt = ChatPrompt([{"role": "user", "content": ["a", "b"]}], tools=[tool], add_generation_prompt=False)
    tokenising(codec).encode(ask(prompt, enable_thinking=True, reasoning_effort="low"))
    ((messages, options),) = codec.chats
    assert messages == prompt.messages
    assert options == {
        "tools": [tool],
        "add_generation_prompt": False,
        "enable_thinking": True,
        "reasoning_effort": "low",
    }


def test_without_a_template_the_texts_are_the_prompt() -> None:
    codec = WordCodec()
    prompt = ChatPrompt([*USER, {"role": "assistant", "content": " three"}], apply_chat_template=False)
    assert tokenising(codec).encode(ask(prompt)).prompt_token_ids == [3, 3, 5]
    assert codec.chats == []


def test_the_native_callback_encodes_messages_of_the_contract() -> None:
    module = ScriptedModule()
    message = module.Message()
    message.role = "user"
    message.contents = [module.MessageContent("text", "one two")]
    item = module.Request()
    item.messages = [message]
    native = module.LLMGenerationRequest()
    native.requests = [item]
    codec = WordCodec()
    assert tokenising(codec).encode_native(native, 0) == [3, 3]
    ((messages, options),) = codec.chats
    assert messages == [{"role": "user", "content": "one two"}]
    assert options["add_generation_prompt"] is True
    native.apply_chat_template = False
    assert tokenising(codec).encode_native(native, 0) == [3, 3]
    assert len(codec.chats) == 1
    message.contents = [module.MessageContent("text", LONG + "w")]
    item.messages = [message]
    native.requests = [item]
    with pytest.raises(ContextLengthError, match="at least 11 tokens"):
        tokenising(codec).encode_native(native, 0)


def measuring(counts: list[GenerationRequest], tokens: int | None, capacity: int = 4000) -> MeasuringFrontEnd:
    def count(request: GenerationRequest) -> int | None:
        counts.append(request)
        return tokens

    return MeasuringFrontEnd(LengthLimits(capacity // 2, capacity), count)


def test_a_prompt_that_is_short_by_any_count_is_not_counted() -> None:
    counted: list[GenerationRequest] = []
    request = ask(ChatPrompt(USER), max_tokens=100)
    assert measuring(counted, None).encode(request) is request
    assert counted == []


def test_a_prompt_that_could_be_too_long_is_counted_once() -> None:
    counted: list[GenerationRequest] = []
    encoded = measuring(counted, 1500).encode(ask(words(1500), max_tokens=100_000))
    assert (len(counted), encoded.params.max_tokens, encoded.prompt_token_ids) == (1, 2500, None)
    with pytest.raises(ContextLengthError, match="max_input_len"):
        measuring(counted, 2001).encode(ask(words(2001)))


def test_where_counting_is_not_safe_the_answer_is_fitted_to_the_whole() -> None:
    assert measuring([], None).encode(ask(words(1500), max_tokens=100_000)).params.max_tokens == 3999


def test_a_runtime_that_tokenises_takes_no_ids() -> None:
    with pytest.raises(UnsupportedParameterError):
        measuring([], None).encode(ask(TokenPrompt([1])))


def test_the_size_of_a_prompt_bounds_its_tokens_however_deep_it_is() -> None:
    deep: Any = "ä"
    for _ in range(5000):
        deep = {"k": [deep]}
    assert prompt_bytes(ChatPrompt([{"role": "user", "content": deep}])) == 5000 + 2 + len("roleusercontent")
    assert prompt_bytes(TextPrompt("\ud800")) == 3
    assert prompt_bytes(TokenPrompt([1, 2])) == 2
