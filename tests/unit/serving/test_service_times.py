"""The estimate behind Retry-After."""

from __future__ import annotations

import pytest

from edgellm.serving.service_times import ServiceTimes


def test_before_anything_has_ended_a_request_is_expected_to_take_as_long_again() -> None:
    assert ServiceTimes().until_next_end_seconds([12.0, 30.0]) == 12.0


def test_what_recent_requests_took_says_when_the_oldest_one_ends() -> None:
    times = ServiceTimes()
    times.ended(20.0)
    assert times.until_next_end_seconds([5.0, 14.0]) == 6.0


def test_a_request_that_runs_longer_than_usual_is_expected_to_go_on() -> None:
    times = ServiceTimes()
    times.ended(20.0)
    assert times.until_next_end_seconds([50.0]) == 50.0


def test_recent_requests_weigh_more() -> None:
    times = ServiceTimes()
    times.ended(100.0)
    for _ in range(30):
        times.ended(10.0)
    assert times.until_next_end_seconds([0.0]) == pytest.approx(10.0, abs=1.0)


@pytest.mark.parametrize("ages", [[], [0.0], [0.2]])
def test_it_never_says_less_than_a_second(ages: list[float]) -> None:
    times = ServiceTimes()
    times.ended(0.01)
    assert times.until_next_end_seconds(ages) == 1.0


def test_it_never_says_more_than_ten_minutes() -> None:
    assert ServiceTimes().until_next_end_seconds([5000.0]) == 600.0
