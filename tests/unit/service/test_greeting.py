"""Stages of several models: one line a change, each under its model's name."""

from __future__ import annotations

import io

import pytest

from edgellm.service import greeting
from edgellm.service.greeting import LossyOutput, StageLines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_models_that_load_together_say_each_change_once_by_name() -> None:
    output = io.StringIO()
    lines = StageLines(LossyOutput(output), several=True)
    for stage in ("waiting", "lowering", "warming up"):
        for _ in range(20):
            lines.show("a", stage, None)
            lines.show("broken", "waiting", None)
    assert output.getvalue().splitlines() == [
        "a: waiting …",
        "broken: waiting …",
        "a: lowering …",
        "a: warming up …",
    ]


def test_where_nothing_moves_several_models_are_quiet_and_one_shows_that_it_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(greeting, "HEARTBEAT_SECONDS", 0.0)
    several, alone = io.StringIO(), io.StringIO()
    lines = StageLines(LossyOutput(several), several=True)
    for fraction in (0.1, 0.1, 0.2):
        lines.show("a", "lowering", fraction)
        lines.show("b", "waiting", None)
    assert several.getvalue().splitlines() == ["a: lowering 10% …", "b: waiting …", "a: lowering 20% …"]
    one = StageLines(LossyOutput(alone))
    for _ in range(2):
        one.show("tiny", "lowering", None)
    assert alone.getvalue().splitlines() == ["tiny: lowering …"] * 2


def test_on_a_terminal_only_the_last_line_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "REDRAW_SECONDS", 0.0)
    output = Terminal()
    lines = StageLines(LossyOutput(output), several=True)
    for fraction in (0.1, 0.2, 0.3):
        lines.show("a", "lowering", fraction)
        lines.show("b", "waiting", None)
    lines.end_line()
    assert output.getvalue().count("a: lowering") == 1
    assert output.getvalue().count("\n") == 2
