"""SamplingParams: how one sequence is sampled. Defaults are those of NVIDIA's Python API, not of HTTP."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from edgellm.errors import RequestError
from edgellm.runtime.guided_decoding import GuidedDecoding, parse_guided_decoding

__all__ = ["GuidedDecoding", "SamplingParams"]

TEMPERATURE_MAX = 2.0
PENALTY_MAX = 2.0
REPETITION_PENALTY_MAX = 2.0
SEED_MAX = 2**64 - 1
TOP_LOGPROBS_MAX = 20
LOGIT_BIAS_ENTRIES_MAX = 1024
LOGIT_BIAS_MAX = 100.0
MAX_TOKEN_ID = 2**31 - 1
STOP_STRINGS_MAX = 16
STOP_BYTES_MAX = 256
MAX_INT64 = 2**63 - 1

_SWITCHES = (
    "enable_thinking",
    "disable_spec_decode",
    "skip_special_tokens",
    "reuse_context",
    "cache_generated_tokens",
    "ignore_eos",
)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Every value is in range once constructed; a wrong one raises RequestError (a ValueError) that names it.

    temperature 0 is greedy; top_k -1 or 0 and min_p 0 are off; penalties 0 (repetition 1) are off.
    ``num_logprobs`` 0 gives none, k gives the chosen token and the k most likely. ``stop`` (one string, several or
    None), ``logit_bias`` (keys int or numeric string, or None) and ``guided_decoding`` are normalised: read them
    through ``stop_strings``, ``bias_by_token_id`` and ``guide``.
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
    logit_bias: Mapping[int | str, float] | Mapping[int, float] | Mapping[str, float] | None = None
    guided_decoding: GuidedDecoding | Mapping[str, object] | tuple[str, str] | None = None
    skip_special_tokens: bool = True
    reuse_context: bool = True
    cache_generated_tokens: bool = True
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        self._set("temperature", _number("temperature", self.temperature, 0.0, TEMPERATURE_MAX))
        self._set("top_p", _number("top_p", self.top_p, 0.0, 1.0, low_is_open=True))
        self._set("min_p", _number("min_p", self.min_p, 0.0, 1.0))
        for name in ("frequency_penalty", "presence_penalty"):
            self._set(name, _number(name, getattr(self, name), -PENALTY_MAX, PENALTY_MAX))
        self._set(
            "repetition_penalty",
            _number("repetition_penalty", self.repetition_penalty, 0.0, REPETITION_PENALTY_MAX, low_is_open=True),
        )
        _check_integer("top_k", self.top_k, -1, MAX_INT64)
        _check_integer("max_tokens", self.max_tokens, 1, MAX_INT64)
        _check_integer("num_logprobs", self.num_logprobs, 0, TOP_LOGPROBS_MAX)
        if self.seed is not None:
            _check_integer("seed", self.seed, 0, SEED_MAX)
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise RequestError(f"{name} must be true or false", param=name)
        if not isinstance(self.reasoning_effort, str):
            raise RequestError("reasoning_effort must be a string", param="reasoning_effort")
        self._set("stop", _stop_strings(self.stop))
        self._set("logit_bias", _bias_by_token_id(self.logit_bias))
        self._set("guided_decoding", parse_guided_decoding(self.guided_decoding))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return cast("tuple[str, ...]", self.stop)

    @property
    def bias_by_token_id(self) -> dict[int, float]:
        return cast("dict[int, float]", self.logit_bias)

    @property
    def guide(self) -> GuidedDecoding | None:
        return cast("GuidedDecoding | None", self.guided_decoding)


def _number(name: str, value: object, low: float, high: float, *, low_is_open: bool = False) -> float:
    number = _finite(value)
    if number is None or not low <= number <= high or (low_is_open and number == low):
        interval = f"above {low:g} and at most {high:g}" if low_is_open else f"from {low:g} to {high:g}"
        raise RequestError(f"{name} must be a number {interval}", param=name)
    return number


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _check_integer(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        too_high = isinstance(value, int) and value > high
        bound = f"of at least {low}" if high == MAX_INT64 and not too_high else f"from {low} to {high}"
        raise RequestError(f"{name} must be an integer {bound}", param=name)


def _stop_strings(stop: object) -> tuple[str, ...]:
    if stop is None or stop == "":
        return ()
    if isinstance(stop, str):
        stop = (stop,)
    if not isinstance(stop, (list, tuple)):
        raise RequestError("stop must be a string or an array of strings", param="stop")
    if len(stop) > STOP_STRINGS_MAX:
        raise RequestError(f"stop takes at most {STOP_STRINGS_MAX} strings, and has {len(stop)}", param="stop")
    for index, text in enumerate(stop):
        param = f"stop[{index}]"
        if not isinstance(text, str):
            raise RequestError(f"{param} must be a string", param=param)
        if not text:
            raise RequestError(f"{param} must not be empty", param=param)
        try:
            size_bytes = len(text.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise RequestError(f"{param} must be valid Unicode text", param=param) from error
        if size_bytes > STOP_BYTES_MAX:
            raise RequestError(f"{param} has {size_bytes} bytes; the limit is {STOP_BYTES_MAX}", param=param)
    return tuple(stop)


def _bias_by_token_id(bias: object) -> dict[int, float]:
    if bias is None:
        return {}
    if not isinstance(bias, Mapping):
        raise RequestError("logit_bias must be an object of token ids and numbers", param="logit_bias")
    if len(bias) > LOGIT_BIAS_ENTRIES_MAX:
        raise RequestError(
            f"logit_bias takes at most {LOGIT_BIAS_ENTRIES_MAX} entries, and has {len(bias)}", param="logit_bias"
        )
    bias_by_id: dict[int, float] = {}
    for key, value in bias.items():
        token_id = _token_id(key)
        param = f"logit_bias.{token_id}"
        number = _finite(value)
        if number is None or abs(number) > LOGIT_BIAS_MAX:
            raise RequestError(f"{param} must be a number from {-LOGIT_BIAS_MAX:g} to {LOGIT_BIAS_MAX:g}", param=param)
        if token_id in bias_by_id:
            raise RequestError(f"{param} is given twice", param=param)
        bias_by_id[token_id] = number
    return bias_by_id


def _token_id(key: object) -> int:
    token_id: int | None = None
    if isinstance(key, int) and not isinstance(key, bool):
        token_id = key
    elif isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= len(str(MAX_TOKEN_ID)):
        token_id = int(key)
    if token_id is None or not 0 <= token_id <= MAX_TOKEN_ID:
        raise RequestError(f"logit_bias keys must be token ids from 0 to {MAX_TOKEN_ID}", param="logit_bias")
    return token_id
