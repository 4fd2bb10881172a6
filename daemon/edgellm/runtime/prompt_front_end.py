"""Prompt front ends: what happens to a prompt before it takes a place in the runtime.

On the native runtime a prompt is rendered and tokenised here, once, and its ids travel. TensorRT renders and
tokenises for itself, so there a prompt is only measured, and only when it could be too long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from edgellm.errors import ContextLengthError, RequestError, UnsupportedModalityError, UnsupportedParameterError
from edgellm.parsing.messages import template_message, unicode_text
from edgellm.runtime.generation import (
    AudioPrompt,
    ChatPrompt,
    GenerationRequest,
    Prompt,
    SpeechPrompt,
    TextPrompt,
    TokenPrompt,
)
from edgellm.runtime.length_limits import LengthLimits
from edgellm.runtime.process_memory import return_freed_memory
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.runtime.tools import normalise_tools, template_tool

# What a template adds at most, in tokens, used where a cheap upper bound is enough.
_TEMPLATE_TOKENS = 512
_TEMPLATE_TOKENS_PER_MESSAGE = 32
# Tokenising so much leaves tens of megabytes with the allocator, and takes far longer than giving them back.
_RETURN_MEMORY_FROM_BYTES = 1 << 20
# A prompt that is only counted may be longer than any model takes, and is bounded by the time that counting takes.
COUNTED_PROMPT_BYTES_MAX = 2 << 20


LengthCheck = Callable[[int], None]


class PromptCodec(Protocol):
    """Renders and tokenises as the checkpoint's author meant it. Thread-safe.

    ``check_length`` is called before tokenising with a number of tokens that the prompt has at least; it may raise.
    """

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = ...,
        apply_chat_template: bool = ...,
        add_generation_prompt: bool = ...,
        enable_thinking: bool = ...,
        reasoning_effort: str = ...,
        check_length: LengthCheck | None = ...,
    ) -> list[int]: ...

    def encode_text(self, text: str, *, check_length: LengthCheck | None = ...) -> list[int]: ...


class PromptFrontEnd(Protocol):
    def encode(self, request: GenerationRequest) -> GenerationRequest:
        """Give the request as it will run. Raises RequestError; ContextLengthError when there is no room."""
        ...

    def count(self, request: GenerationRequest) -> int:
        """Give how many tokens its prompt has, whether or not there is room for them. Raises RequestError."""
        ...


class TokenisingFrontEnd:
    """Fills ``prompt_token_ids`` and fits ``max_tokens`` to what the prompt leaves. Thread-safe."""

    def __init__(self, codec: PromptCodec, limits: LengthLimits, vocab_size: int) -> None:
        self._codec = codec
        self._limits = limits
        self._vocab_size = vocab_size

    def encode(self, request: GenerationRequest) -> GenerationRequest:
        param = _prompt_param(request.prompt)
        token_ids = request.prompt_token_ids
        if token_ids is None:
            max_tokens = request.params.max_tokens
            if isinstance(request.prompt, TokenPrompt):  # before each of them is looked at
                self._limits.fitted(request.params, len(request.prompt.token_ids), param=param)
            token_ids = self._token_ids(request, self._length_check(max_tokens, param))
        if not token_ids:
            raise _no_tokens(param)
        params = self._limits.fitted(request.params, len(token_ids), param=param)
        return replace(request, params=params, prompt_token_ids=token_ids)

    def count(self, request: GenerationRequest) -> int:
        """Longer prompts than the model takes are counted too: who asks wants to know by how much."""
        param = _prompt_param(request.prompt)

        size_bytes = prompt_bytes(request.prompt)
        if size_bytes > COUNTED_PROMPT_BYTES_MAX:
            raise ContextLengthError(
                f"the prompt has {size_bytes} bytes; up to {COUNTED_PROMPT_BYTES_MAX} are counted", param=param
            )
        token_ids = self._token_ids(request, _of_any_length)
        if not token_ids:
            raise _no_tokens(param)
        return len(token_ids)

    def encode_native(self, native_request: Any, index: int) -> list[int]:
        """Encode one request of a native batch: the callback for requests that bring messages and no ids."""
        item = native_request.requests[index]
        return self._codec.encode_chat(
            [template_message(message) for message in item.messages],
            tools=[template_tool(tool) for tool in native_request.tools],
            apply_chat_template=native_request.apply_chat_template,
            add_generation_prompt=native_request.add_generation_prompt,
            enable_thinking=native_request.enable_thinking,
            reasoning_effort=native_request.reasoning_effort,
            check_length=self._length_check(native_request.max_generate_length, "messages"),
        )

    def _token_ids(self, request: GenerationRequest, check_length: LengthCheck) -> Sequence[int]:
        try:
            return self._tokenised(request.prompt, request.params, check_length)
        finally:
            if prompt_bytes(request.prompt) >= _RETURN_MEMORY_FROM_BYTES:
                return_freed_memory()

    def _tokenised(self, prompt: Prompt, params: SamplingParams, check_length: LengthCheck) -> Sequence[int]:
        if isinstance(prompt, TokenPrompt):
            return self._checked_ids(prompt.token_ids)
        if isinstance(prompt, TextPrompt):
            return self._codec.encode_text(unicode_text(prompt.text, "prompt"), check_length=check_length)
        if isinstance(prompt, AudioPrompt):
            raise UnsupportedModalityError("this model takes no audio input", param="file")
        if isinstance(prompt, SpeechPrompt):
            raise UnsupportedModalityError("this model does not speak", param="input")
        tools, _ = normalise_tools(prompt.tools, prompt.tool_choice)
        return self._codec.encode_chat(
            prompt.messages,
            tools=[template_tool(tool) for tool in tools],
            apply_chat_template=prompt.apply_chat_template,
            add_generation_prompt=prompt.add_generation_prompt,
            enable_thinking=params.enable_thinking,
            reasoning_effort=params.reasoning_effort,
            check_length=check_length,
        )

    def _length_check(self, max_tokens: int, param: str) -> LengthCheck:
        return lambda fewest_tokens: self._limits.refuse_longer(fewest_tokens, max_tokens, param=param)

    def _checked_ids(self, token_ids: Sequence[int]) -> Sequence[int]:
        for token_id in token_ids:
            if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < self._vocab_size:
                raise RequestError(
                    f"prompt token ids must be integers from 0 to {self._vocab_size - 1}", param="prompt"
                )
        return token_ids


def _of_any_length(_fewest_tokens: int) -> None:
    """Nothing is refused."""


def _no_tokens(param: str) -> RequestError:
    return RequestError("the prompt is empty: it has no tokens", param=param)


class MeasuringFrontEnd:
    """Lets a prompt pass that is short by any count; a longer one is counted by the runtime, where that is safe."""

    def __init__(self, limits: LengthLimits, count_tokens: Callable[[GenerationRequest], int | None]) -> None:
        self._limits = limits
        self._count_tokens = count_tokens

    def encode(self, request: GenerationRequest) -> GenerationRequest:
        if isinstance(request.prompt, TokenPrompt) or request.prompt_token_ids is not None:
            raise UnsupportedParameterError("this runtime takes no prompts of token ids", param="prompt")
        params, limits = request.params, self._limits
        most_tokens = prompt_bytes(request.prompt) + _template_tokens(request.prompt)
        if most_tokens <= limits.max_input_len and most_tokens + params.max_tokens <= limits.max_kv_cache_capacity:
            return request
        prompt_tokens = self._count_tokens(request)
        # Not counted: at least one token of prompt, and the runtime itself refuses what is too long.
        known_tokens = 1 if prompt_tokens is None else prompt_tokens
        return replace(request, params=limits.fitted(params, known_tokens, param=_prompt_param(request.prompt)))

    def count(self, request: GenerationRequest) -> int:
        tokens = self._count_tokens(request)
        if tokens is None:
            raise UnsupportedParameterError("this model's runtime cannot count tokens beside its requests")
        return tokens


def prompt_bytes(prompt: Prompt) -> int:
    """Give the UTF-8 size of what a prompt says: no tokenizer makes more tokens of it than that."""
    if isinstance(prompt, TokenPrompt):
        return len(prompt.token_ids)
    if isinstance(prompt, (TextPrompt, SpeechPrompt)):
        return _utf8_bytes(prompt.text)
    if isinstance(prompt, AudioPrompt):
        return _utf8_bytes(prompt.context)
    return _value_bytes(prompt.messages) + _value_bytes(prompt.tools)


def _value_bytes(value: object) -> int:
    """Sum up the strings of nested lists and objects, without recursion: the depth is the client's choice."""
    total_bytes = 0
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            total_bytes += _utf8_bytes(node)
        elif isinstance(node, Mapping):
            waiting.extend(node.keys())
            waiting.extend(node.values())
        elif isinstance(node, (list, tuple)):
            waiting.extend(node)
        else:
            total_bytes += len(str(node))
    return total_bytes


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _template_tokens(prompt: Prompt) -> int:
    messages = len(prompt.messages) if isinstance(prompt, ChatPrompt) else 1
    return _TEMPLATE_TOKENS + _TEMPLATE_TOKENS_PER_MESSAGE * messages


def _prompt_param(prompt: Prompt) -> str:
    return "messages" if isinstance(prompt, ChatPrompt) else "prompt"
