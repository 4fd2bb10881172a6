"""What text that arrives in pieces may still become: how much of its end to hold back."""

from __future__ import annotations

from collections.abc import Sequence

MAX_HELD_SPACE_CHARACTERS = 64
"""White space beside a mark counts as part of it, up to here."""


def partial_mark(text: str, marks: Sequence[str]) -> int:
    """How many characters at the end of ``text`` could begin one of ``marks``; whole marks do not count."""
    longest = 0
    for mark in marks:
        for length in range(min(len(mark) - 1, len(text)), longest, -1):
            if text.endswith(mark[:length]):
                longest = length
                break
    return longest


def trailing_space(text: str, end: int) -> int:
    """Where the white space begins that stands before ``end``, at most MAX_HELD_SPACE_CHARACTERS of it."""
    start = end
    lowest = max(0, end - MAX_HELD_SPACE_CHARACTERS)
    while start > lowest and text[start - 1].isspace():
        start -= 1
    return start
