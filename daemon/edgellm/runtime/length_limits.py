"""LengthLimits: how many tokens a prompt and its answer may have, and what a prompt leaves for the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgellm.errors import ContextLengthError
from edgellm.runtime.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class LengthLimits:
    """``max_input_len`` bounds the prompt, ``max_kv_cache_capacity`` prompt and answer of one sequence together."""

    max_input_len: int
    max_kv_cache_capacity: int

    def refuse_longer(self, fewest_tokens: int, max_tokens: int, *, param: str) -> None:
        """Raise ContextLengthError for a prompt that has at least ``fewest_tokens``, before it is tokenised."""
        if fewest_tokens > self.max_input_len:
            raise _too_long(f"at least {fewest_tokens}", max_tokens, "max_input_len", self.max_input_len, param)

    def fitted(self, params: SamplingParams, prompt_tokens: int, *, param: str) -> SamplingParams:
        """Give the params with ``max_tokens`` lowered to what remains. Raises ContextLengthError where none does."""
        if prompt_tokens > self.max_input_len:
            raise _too_long(prompt_tokens, params.max_tokens, "max_input_len", self.max_input_len, param)
        capacity_tokens = self.max_kv_cache_capacity
        remaining_tokens = capacity_tokens - prompt_tokens
        if remaining_tokens < 1:
            raise _too_long(prompt_tokens, params.max_tokens, "max_kv_cache_capacity", capacity_tokens, param)
        if params.max_tokens <= remaining_tokens:
            return params
        return replace(params, max_tokens=remaining_tokens)


def _too_long(
    prompt_tokens: int | str, max_tokens: int, limit_name: str, limit_tokens: int, param: str
) -> ContextLengthError:
    return ContextLengthError(
        f"the prompt has {prompt_tokens} tokens, and its answer may have up to {max_tokens} more; the limit of "
        f"this model is {limit_tokens} tokens ({limit_name}): shorten the prompt",
        param=param,
    )
