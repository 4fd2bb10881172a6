"""Stretches: a long sound in pieces that a model can hear, cut where it is quietest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgellm.media.audio import SAMPLE_RATE_HZ, Samples

# A stretch is cut in its last part, in the middle of the quietest moment there: seldom inside a word.
_CUT_WITHIN = 0.25  # of a stretch
_MOMENT_SAMPLES = SAMPLE_RATE_HZ // 5


def stretches(pieces: Iterator[Samples], samples_max: int) -> Iterator[Samples]:
    """Together they are the sound. None is longer than ``samples_max``."""
    waiting: list[Samples] = []
    waiting_samples = 0
    for piece in pieces:
        waiting.append(piece)
        waiting_samples += len(piece)
        while waiting_samples > samples_max:
            sound = np.concatenate(waiting)
            cut = _quiet_place(sound[:samples_max])
            yield sound[:cut]
            waiting, waiting_samples = [sound[cut:]], len(sound) - cut
    if waiting_samples:
        yield np.concatenate(waiting)


def _quiet_place(sound: Samples) -> int:
    begin = round(len(sound) * (1 - _CUT_WITHIN))
    moments = (len(sound) - begin) // _MOMENT_SAMPLES
    if moments < 1:
        return len(sound)
    energies = np.square(sound[len(sound) - moments * _MOMENT_SAMPLES :]).reshape(moments, -1).sum(axis=1)
    quietest = int(energies.argmin())
    return len(sound) - (moments - quietest) * _MOMENT_SAMPLES + _MOMENT_SAMPLES // 2
