"""The estimate behind Retry-After where it is known how far each run is."""

from __future__ import annotations

import itertools

import pytest

from edgellm.serving.run_lengths import RunLengths, RunProgress

GAP_SECONDS = 0.05


def after(tokens: int, tokens_max: int, following: int = 0) -> RunProgress:
    return RunProgress(tokens, tokens_max, max(0, tokens - 1) * GAP_SECONDS, following)


def estimated(lengths: RunLengths, *running: RunProgress | None, age_seconds: float = 3.0) -> float:
    return lengths.until_next_end_seconds([(age_seconds, one) for one in running])


def test_long_runs_after_short_ones_are_not_expected_to_be_short() -> None:
    lengths = RunLengths()
    for _ in range(20):
        lengths.ended(0.4, after(8, 8))
    assert estimated(lengths, *[after(60, 400)] * 4) == pytest.approx(340 * GAP_SECONDS)


def test_runs_that_say_less_than_they_may_shorten_the_estimate_and_never_lengthen_it() -> None:
    lengths = RunLengths()
    bound_seconds = estimated(lengths, after(100, 4000))
    assert bound_seconds == pytest.approx(3900 * GAP_SECONDS)
    lengths.ended(10.0, after(200, 4000))
    assert estimated(lengths, after(100, 4000)) == pytest.approx(bound_seconds / 20)


def test_the_first_to_end_counts() -> None:
    assert estimated(RunLengths(), after(100, 400), after(20, 100)) == pytest.approx(80 * GAP_SECONDS)


def test_what_a_slot_runs_afterwards_counts() -> None:
    assert estimated(RunLengths(), after(100, 200, following=400)) == pytest.approx(500 * GAP_SECONDS)


@pytest.mark.parametrize("usual", [None, 10, 200])
def test_the_estimate_falls_with_each_token_and_grows_with_the_limit(usual: int | None) -> None:
    lengths = RunLengths()
    if usual is not None:
        lengths.ended(10.0, after(usual, 200))
    for tokens_max, longer in itertools.pairwise((100, 400, 1600)):
        for tokens in range(10, tokens_max):
            now = estimated(lengths, after(tokens, tokens_max))
            assert now >= estimated(lengths, after(tokens + 1, tokens_max))
            assert now <= estimated(lengths, after(tokens, longer))


def test_before_a_run_shows_its_pace_that_of_others_holds() -> None:
    lengths = RunLengths()
    lengths.ended(10.0, after(200, 200))
    stalled_at_first = RunProgress(2, 200, 4.0)
    assert estimated(lengths, after(0, 200)) == pytest.approx(200 * GAP_SECONDS)
    assert estimated(lengths, stalled_at_first) == pytest.approx(198 * GAP_SECONDS)


def test_without_a_pace_or_tokens_it_goes_by_how_long_others_took() -> None:
    lengths = RunLengths()
    assert estimated(lengths, after(0, 200), age_seconds=7.0) == 7.0
    lengths.ended(20.0)
    assert estimated(lengths, None, age_seconds=5.0) == 15.0
    assert estimated(lengths, after(0, 200), age_seconds=5.0) == 15.0


def test_it_says_neither_less_than_a_second_nor_more_than_ten_minutes() -> None:
    assert estimated(RunLengths()) == 1.0
    assert estimated(RunLengths(), after(399, 400)) == 1.0
    assert estimated(RunLengths(), after(10, 1_000_000)) == 600.0
