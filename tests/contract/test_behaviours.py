"""Both modules behave as measured: the same test code runs on either."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.all_behaviours import BEHAVIOURS

Report = dict[str, Any]


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_native(name: str, native_report: Report) -> None:
    failure = native_report["failures"][name]
    assert not failure, failure


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_nvidia(name: str, nvidia_report: Report) -> None:
    failure = nvidia_report["failures"][name]
    assert not failure, failure


def test_our_grammar_enforces_more_than_theirs(native_report: Report, nvidia_report: Report) -> None:
    assert all(native_report["keywords_passed"].values())
    assert not any(nvidia_report["keywords_passed"].values())
