"""The order of versions is that of Python packages."""

from __future__ import annotations

from itertools import pairwise

import pytest

from edgellm.host.versions import Version

RISING = [
    *("0.9", "1.0.dev1", "1.0a1", "1.0a2.dev1", "1.0a2", "1.0b1", "1.0rc1", "1.0rc2", "1.0"),
    *("1.0.post1", "1.0.1", "1.2", "1.10", "2.0.0.dev3"),
]


@pytest.mark.parametrize(("lower", "higher"), list(pairwise(RISING)))
def test_a_later_one_is_higher(lower: str, higher: str) -> None:
    assert Version(lower) < Version(higher)
    assert not Version(higher) < Version(lower)
    assert Version(lower) != Version(higher)


def test_zeros_at_the_end_and_local_parts_do_not_count() -> None:
    assert Version("1.0") == Version("1.0.0")
    assert Version("1.0+board.2") == Version("1.0")
    assert hash(Version("1.0")) == hash(Version("1.0.0"))


@pytest.mark.parametrize("text", ["", "one", "1.", "1.0-", "../1.0", "1.0 2.0", "1.0\n\n2"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no version"):
        Version(text)
