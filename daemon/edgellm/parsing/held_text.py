"""What text that arrives in pieces may still become: how much of its end to hold back."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_HELD_SPACE_CHARACTERS = 64
"""White space beside a mark counts as part of it, up to here."""


class Marks:
    """Texts to look for. None of them is the beginning of another."""

    def __init__(self, marks: Sequence[str]) -> None:
        self.all = tuple(marks)
        self._first_characters = frozenset(mark[0] for mark in marks)
        self._beginnings = frozenset(mark[:length] for mark in marks for length in range(1, len(mark)))
        self._longest_characters = max(map(len, marks), default=0)
        self._any = re.compile("|".join(map(re.escape, marks)))

    def are_out_of_sight(self, text: str) -> bool:
        """No mark begins in ``text``: the usual case, and quick to tell."""
        return not any(character in text for character in self._first_characters)

    def search(self, text: str) -> re.Match[str] | None:
        """The first whole mark."""
        return self._any.search(text)

    def partial_characters(self, text: str) -> int:
        """How many characters at the end of ``text`` could begin a mark; whole marks do not count."""
        if self.are_out_of_sight(text):
            return 0
        for start in range(max(0, len(text) - self._longest_characters + 1), len(text)):
            if text[start] in self._first_characters and text[start:] in self._beginnings:
                return len(text) - start
        return 0


def trailing_space(text: str, end: int) -> int:
    """Where the white space begins that stands before ``end``, at most MAX_HELD_SPACE_CHARACTERS of it."""
    start = end
    lowest = max(0, end - MAX_HELD_SPACE_CHARACTERS)
    while start > lowest and text[start - 1].isspace():
        start -= 1
    return start
