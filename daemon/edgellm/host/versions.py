"""Versions of releases and their order, as Python packages have it: 1.0.dev1 < 1.0a1 < 1.0rc1 < 1.0 < 1.0.post1."""

from __future__ import annotations

import re
from functools import total_ordering

_VERSION = re.compile(
    r"v?(?P<numbers>\d+(?:\.\d+)*)(?:[-_.]?(?P<kind>a|b|rc)[-_.]?(?P<pre>\d+))?(?:\.post(?P<post>\d+))?"
    r"(?:\.dev(?P<dev>\d+))?(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?"
)
_NEVER = float("inf")


@total_ordering
class Version:
    """Raises ValueError for a text that is no version. Local parts (``+board``) are kept and do not count."""

    def __init__(self, text: str) -> None:
        found = _VERSION.fullmatch(text.strip().lower())
        if found is None:
            raise ValueError(f"{text!r} is no version such as 1.2.0 or 1.2.0rc1")
        self.text = text.strip()
        numbers = [int(number) for number in found["numbers"].split(".")]
        while len(numbers) > 1 and numbers[-1] == 0:
            numbers.pop()
        development = _NEVER if found["dev"] is None else int(found["dev"])
        if found["kind"] is not None:
            stage: tuple[str, float] = (found["kind"], int(found["pre"]))
        elif found["dev"] is not None and found["post"] is None:
            stage = ("", 0.0)  # before every pre-release
        else:
            stage = ("~", 0.0)  # after every pre-release
        post = -1 if found["post"] is None else int(found["post"])
        self._key = (tuple(numbers), stage, post, development)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key == other._key

    def __lt__(self, other: Version) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        return self.text
