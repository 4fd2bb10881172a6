"""Progress on standard error: one line that moves on a terminal, the ends of each stage elsewhere."""

from __future__ import annotations

import pytest

from edgellm.cli.progress_line import ProgressLine
from edgellm.engines.progress import Progress

MEGABYTE = 1_000_000


def show(line: ProgressLine, stage: str, *done_megabytes: int) -> None:
    for done in done_megabytes:
        line.show(Progress(stage, stage, done * MEGABYTE, 9 * MEGABYTE))


def test_a_pipe_gets_the_first_and_the_last_of_each_stage(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressLine() as line:
        show(line, "copy", 0, 3, 6, 9)
        line.show(Progress("wait", "waiting"))
        show(line, "verify", 9)
        show(line, "hash", 0, 5, 9)
    assert capsys.readouterr().err.splitlines() == [
        "copy: 0 of 9 MB",
        "copy: 9 of 9 MB",
        "waiting",
        "verify: 9 of 9 MB",
        "hash: 0 of 9 MB",
        "hash: 9 of 9 MB",
    ]


def test_a_step_that_fails_shows_how_far_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with ProgressLine() as line:
            show(line, "copy", 0, 3, 6)
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert capsys.readouterr().err.splitlines() == ["copy: 0 of 9 MB", "copy: 6 of 9 MB"]


def test_nothing_to_show_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressLine():
        pass
    assert capsys.readouterr().err == ""
