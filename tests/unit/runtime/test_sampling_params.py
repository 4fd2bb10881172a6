"""SamplingParams: defaults, ranges and normal forms."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from edgellm.errors import RequestError
from edgellm.runtime.sampling_params import GuidedDecoding, SamplingParams


def test_defaults_are_those_of_nvidias_python_api() -> None:
    params = SamplingParams()
    assert (params.temperature, params.top_p, params.top_k, params.max_tokens) == (0.7, 0.9, 50, 2048)
    assert (params.seed, params.num_logprobs, params.reasoning_effort) == (None, 0, "")
    assert (params.stop_strings, params.bias_by_token_id, params.guide) == ((), {}, None)
    assert params.skip_special_tokens
    assert params.reuse_context
    assert params.cache_generated_tokens
    assert not params.enable_thinking
    assert not params.disable_spec_decode


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("temperature", [0, 0.0, 2, 2.0]),
        ("top_p", [1e-6, 1, 1.0]),
        ("top_k", [-1, 0, 1, 2**63 - 1]),
        ("min_p", [0, 1]),
        ("frequency_penalty", [-2, 2]),
        ("presence_penalty", [-2, 2]),
        ("repetition_penalty", [1e-6, 2]),
        ("seed", [None, 0, 2**64 - 1]),
        ("max_tokens", [1, 2**63 - 1]),
        ("num_logprobs", [0, 20]),
    ],
)
def test_both_ends_of_a_range_are_in_it(name: str, values: list[Any]) -> None:
    for value in values:
        assert getattr(SamplingParams(**{name: value}), name) == value


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("temperature", [-0.001, 2.001, math.nan, math.inf, "1", None, True, 10**400]),
        ("top_p", [0, -1, 1.001, math.nan, "1", None, True]),
        ("top_k", [-2, 1.5, "1", None, True, 2**63]),
        ("min_p", [-0.1, 1.1, math.nan, None, False]),
        ("frequency_penalty", [-2.1, 2.1, math.nan, "0"]),
        ("presence_penalty", [-2.1, 2.1, math.nan, []]),
        ("repetition_penalty", [0, 2.1, math.nan, -1]),
        ("seed", [-1, 2**64, 1.0, "1", True]),
        ("max_tokens", [0, -1, 1.0, "1", None, True]),
        ("num_logprobs", [-1, 21, 1.0, True]),
        ("reasoning_effort", [None, 3]),
    ],
)
def test_a_value_out_of_range_or_type_is_refused_by_name(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(RequestError, match=name) as refusal:
            SamplingParams(**{name: value})
        assert refusal.value.param == name
        assert isinstance(refusal.value, ValueError)


@pytest.mark.parametrize(
    "name",
    [
        "reuse_context",
        "cache_generated_tokens",
        "enable_thinking",
        "disable_spec_decode",
        "skip_special_tokens",
        "ignore_eos",
    ],
)
@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_switches_are_real_booleans(name: str, value: Any) -> None:
    with pytest.raises(RequestError) as refusal:
        SamplingParams(**{name: value})
    assert refusal.value.param == name


@pytest.mark.parametrize(
    ("stop", "normal"),
    [(None, ()), ("", ()), ([], ()), ("end", ("end",)), (["a", "b"], ("a", "b")), (("é" * 128,), ("é" * 128,))],
)
def test_stop_takes_none_one_string_or_several(stop: Any, normal: tuple[str, ...]) -> None:
    assert SamplingParams(stop=stop).stop_strings == normal


@pytest.mark.parametrize(
    ("stop", "param"),
    [
        (["x"] * 17, "stop"),
        (3, "stop"),
        ({"a": 1}, "stop"),
        (["a", 3], "stop[1]"),
        (["a", ""], "stop[1]"),
        (["x" * 257], "stop[0]"),
        (["é" * 129], "stop[0]"),
        (["\ud800"], "stop[0]"),
    ],
)
def test_stop_is_bounded(stop: Any, param: str) -> None:
    with pytest.raises(RequestError) as refusal:
        SamplingParams(stop=stop)
    assert refusal.value.param == param


def test_logit_bias_takes_ids_and_numeric_strings() -> None:
    bias = {0: 1, "7": -100, 2**31 - 1: 100.0}
    assert SamplingParams(logit_bias=bias).bias_by_token_id == {0: 1.0, 7: -100.0, 2**31 - 1: 100.0}
    assert SamplingParams(logit_bias=None).bias_by_token_id == {}
    assert len(SamplingParams(logit_bias=dict.fromkeys(range(1024), 1.0)).bias_by_token_id) == 1024


@pytest.mark.parametrize(
    "bias",
    [
        dict.fromkeys(range(1025), 1.0),
        {True: 1.0},
        {-1: 1.0},
        {2**31: 1.0},
        {"-1": 1.0},
        {"1.5": 1.0},
        {"²": 1.0},
        {"9" * 5000: 1.0},
        {1.0: 1.0},
        {1: True},
        {1: "5"},
        {1: 100.5},
        {1: math.nan},
        {1: math.inf},
        {1: None},
        {1: 1.0, "1": 2.0},
        [1, 2],
        "1",
    ],
)
def test_logit_bias_is_bounded(bias: Any) -> None:
    with pytest.raises(RequestError) as refusal:
        SamplingParams(logit_bias=bias)
    assert (refusal.value.param or "").startswith("logit_bias")


def test_a_copy_with_a_change_keeps_the_normal_forms() -> None:
    params = SamplingParams(stop="end", logit_bias={"3": 1}, guided_decoding={"regex": "a+"})
    changed = dataclasses.replace(params, max_tokens=5)
    assert changed.max_tokens == 5
    assert (changed.stop_strings, changed.bias_by_token_id) == (("end",), {3: 1.0})
    assert changed.guide == GuidedDecoding("regex", "a+")


@pytest.mark.parametrize("name", ["max_tokens", "top_k"])
def test_an_integer_that_is_too_large_is_told_the_upper_bound(name: str) -> None:
    with pytest.raises(RequestError, match=f"{name} must be an integer from -?1 to {2**63 - 1}"):
        SamplingParams(**{name: 2**63})
