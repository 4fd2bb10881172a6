"""The end of a JSON value is found in any text, and its first error at once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgellm.parsing.json_scanner import MAX_DEPTH_LEVELS, JsonScanner

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)
COMPOUND = st.lists(VALUES, max_size=4) | st.dictionaries(st.text(), VALUES, max_size=4)


def _scan(pieces: list[str]) -> tuple[JsonScanner, int]:
    scanner, taken = JsonScanner(), 0
    for piece in pieces:
        read = scanner.feed(piece)
        taken += read
        if read < len(piece):
            assert scanner.complete or scanner.failed
            break
    return scanner, taken


@given(COMPOUND, st.text(max_size=5), st.integers(0, 60), st.sampled_from([None, 1]), st.booleans())
def test_a_value_ends_where_it_ends(value: Any, rest: str, cut: int, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    whole = text + rest
    for pieces in ([whole], list(whole), [whole[:cut], whole[cut:]]):
        scanner, taken = _scan(pieces)
        assert scanner.complete
        assert taken == len(text)
    scanner, _ = _scan([text[:-1]])
    assert not scanner.complete
    assert not scanner.failed


@given(st.text(st.sampled_from('{}[]",:\\u0trnef-+.1 eE\n'), max_size=30))
def test_what_is_complete_is_json_and_what_failed_is_none(text: str) -> None:
    scanner, taken = _scan([text])
    if scanner.complete:
        json.loads(text[:taken], strict=False)
    if scanner.failed:
        with pytest.raises(json.JSONDecodeError):
            json.loads(text, strict=False)


@pytest.mark.parametrize(
    "text",
    ["{a", "[1,]", "{,", '{"a" 1', '{"a":}', "[1 2", "[tru]", "[NaN]", "[01]", '["\\x"]', '["\\u12g"]', "}", "x!"],
)
def test_an_error_shows_as_soon_as_it_can(text: str) -> None:
    scanner, _ = _scan([text, "x" * 10])
    assert scanner.failed


def test_depth_and_numbers_are_bounded() -> None:
    assert _scan(["[" * (MAX_DEPTH_LEVELS + 1)])[0].failed
    assert not _scan(["[" * MAX_DEPTH_LEVELS])[0].failed
    assert _scan(["[" + "1" * 600])[0].failed
