"""Stretches of a long sound: all of it, none too long, cut where it is quiet."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from edgellm.media.audio import SAMPLE_RATE_HZ, Samples
from edgellm.media.audio_stretches import stretches

LONGEST = 10 * SAMPLE_RATE_HZ


def pieces(sound: Samples, piece_samples: int) -> Iterator[Samples]:
    return (sound[begin : begin + piece_samples] for begin in range(0, len(sound), piece_samples))


@pytest.mark.parametrize("length", [0, 1, LONGEST - 1, LONGEST, LONGEST + 1, 3 * LONGEST + 7])
@pytest.mark.parametrize("piece_samples", [1000, LONGEST, 5 * LONGEST])
def test_together_they_are_the_sound(length: int, piece_samples: int) -> None:
    sound = np.random.default_rng(7).uniform(-1, 1, length).astype(np.float32)
    cut = list(stretches(pieces(sound, piece_samples), LONGEST))
    assert all(0 < len(stretch) <= LONGEST for stretch in cut)
    assert len(cut) >= -(-length // LONGEST)
    assert np.array_equal(np.concatenate([np.zeros(0, np.float32), *cut]), sound)


@pytest.mark.parametrize("quiet_seconds", [7.8, 8.0, 9.0, 9.7])
def test_the_cut_is_where_it_is_quiet(quiet_seconds: float) -> None:
    sound = np.ones(2 * LONGEST, np.float32)
    begin = round(quiet_seconds * SAMPLE_RATE_HZ)
    sound[begin : begin + SAMPLE_RATE_HZ // 4] = 0.0
    first = next(stretches(pieces(sound, 1000), LONGEST))
    assert begin - SAMPLE_RATE_HZ // 5 <= len(first) <= begin + SAMPLE_RATE_HZ // 4


def test_a_stretch_shorter_than_a_moment_is_cut_at_its_end() -> None:
    assert [len(stretch) for stretch in stretches(pieces(np.ones(250, np.float32), 50), 100)] == [100, 100, 50]
