"""The body of POST /v1/completions."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from edgellm.api import limits
from edgellm.api.wire.fields import invalid, neutral
from edgellm.api.wire.sampling import SamplingFields


def text_or_token_prompts(value: object, most: int = limits.PROMPTS_MAX) -> list[str | list[int]]:
    """A string, an array of strings, an array of token ids, or an array of such arrays, as a list of prompts."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise invalid("must be a string or an array that is not empty")
    if all(isinstance(entry, str) for entry in value):
        return _bounded(value, most)
    if all(_is_token_id(entry) for entry in value):
        return [value]
    if all(isinstance(entry, list) and entry and all(_is_token_id(token) for token in entry) for entry in value):
        return _bounded(value, most)
    raise invalid("must hold either strings, or token ids, or arrays of token ids")


def _bounded(prompts: list[str | list[int]], most: int) -> list[str | list[int]]:
    if len(prompts) > most:
        raise invalid(f"must hold at most {most} entries")
    return prompts


def _is_token_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limits.INT32_MAX


def _false_asks_for_nothing(value: object) -> object:
    return None if value is False else value


class CompletionRequest(SamplingFields):
    model: str = Field(max_length=limits.NAME_CHARACTERS_MAX)
    prompt: Annotated[list[Any], BeforeValidator(text_or_token_prompts, str | list[str] | list[int] | list[list[int]])]
    logprobs: Annotated[
        Annotated[int, Field(ge=0, le=limits.TOP_LOGPROBS_MAX)] | None, BeforeValidator(_false_asks_for_nothing)
    ] = None
    best_of: Annotated[int, Field(ge=1, le=limits.CHOICES_MAX)] | None = None
    suffix: Annotated[Any, neutral("")] = None

    @field_validator("prompt")
    @classmethod
    def _few_sequences(cls, prompts: list[Any], info: ValidationInfo) -> list[Any]:
        sequences = max(info.data.get("n", 1), info.data.get("best_of") or 1)
        if len(prompts) * sequences > limits.SEQUENCES_MAX:
            most = limits.SEQUENCES_MAX // sequences
            raise invalid(f"must hold at most {most} prompts when {sequences} answers are made to each")
        return prompts

    @property
    def sequences(self) -> int:
        """How many answers are made to each prompt; the best ``n`` of them are given."""
        return self.n if self.best_of is None else self.best_of
