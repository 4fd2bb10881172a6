"""Numbers of options: read within their bounds, refused with them."""

from __future__ import annotations

import argparse

import pytest

from edgellm.host.option_types import duration, whole_number


def test_numbers_within_their_bounds_are_read() -> None:
    assert [whole_number("releases", 0, 9)(text) for text in ("0", "9")] == [0, 9]
    assert [duration("minutes", 60.0, 1.0)(text) for text in ("1", "1.5", "60")] == [1.0, 1.5, 60.0]
    assert duration("seconds", 60.0)("1e-3") == 0.001


@pytest.mark.parametrize("text", ["-1", "10", "1.0", "many", "", "²", "1_0"])
def test_other_whole_numbers_are_refused_with_the_bounds(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no number of releases from 0 to 9"):
        whole_number("releases", 0, 9)(text)


@pytest.mark.parametrize("text", ["0", "-1", "61", "nan", "inf", "-inf", "soon", ""])
def test_other_durations_are_refused_with_the_bounds(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no time in seconds above 0, up to 60"):
        duration("seconds", 60.0)(text)
    with pytest.raises(argparse.ArgumentTypeError, match="is no time in minutes from 1 to 60"):
        duration("minutes", 60.0, 1.0)(text)
