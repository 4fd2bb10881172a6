"""SamplingParams: how one sequence is sampled. Defaults are those of NVIDIA's Python API, not of HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class GuidedDecoding:
    """``type`` is one of json_object, json_schema, regex, ebnf, structural_tag, choice; ``guide`` its text."""

    type: str
    guide: str = ""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """temperature 0 is greedy; top_k -1 or 0 and min_p 0 are off; penalties 0 (repetition 1) are off.

    ``num_logprobs`` 0 gives none, k gives the chosen token and the k most likely.
    """

    temperature: float = 0.7
    top_p: float = 0.9
    top_k: int = 50
    seed: int | None = None
    max_tokens: int = 2048
    enable_thinking: bool = False
    reasoning_effort: str = ""
    disable_spec_decode: bool = False
    num_logprobs: int = 0
    stop: Sequence[str] | str | None = None
    logit_bias: Mapping[int | str, float] | None = field(default=None)
    guided_decoding: GuidedDecoding | Mapping[str, object] | None = None
    skip_special_tokens: bool = True
    reuse_context: bool = True
    cache_generated_tokens: bool = True
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    ignore_eos: bool = False
