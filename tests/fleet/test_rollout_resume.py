"""A rollout whose control host died goes on where it was, at whatever step."""

from __future__ import annotations

import signal

import pytest
from tests.fleet.rollout_fleet import BOARDS, STEPS, RolloutFleet


@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_ended_after_a_step_goes_on_from_there(boards: RolloutFleet, step: str) -> None:
    board, source = BOARDS[0], boards.release(f"2.{STEPS.index(step)}.0")
    ended = boards.roll_out_until(step, board, source)
    assert ended.code == -signal.SIGKILL, ended.output
    assert boards.steps(board)[-1] == (step, "done")
    is_over = step == STEPS[-1]
    assert boards.statuses()[board] == ("UP" if is_over else "MAINT")
    ticket = boards.record(board)["ticket"]
    with boards.client() as client:
        played = boards.roll_out(source, limit=[board])
        assert played.code == 0, played.output
        client.wait_for_answers(1, boards.gateway.wait_for)
    assert client.failures == []
    record = boards.record(board)
    assert (record["ticket"], record["outcome"]) == (ticket, "done")
    assert boards.steps(board)[-1] == ("back_in", "done")
    assert boards.version(board) == source.name.split("-")[1]
    boards.wait_until_all_are_in()


def test_a_run_that_was_interrupted_goes_on_where_it_was(boards: RolloutFleet) -> None:
    source, before = boards.release("1.4.0"), boards.ticket(BOARDS[1])
    for step in STEPS[:-1]:
        started = boards.control.start("rollout", "-e", f"rollout_source={source}", "--limit", BOARDS[1])
        boards.wait_until_begun(BOARDS[1], step, before)
        started.kill()
        started.communicate()
    ticket = boards.ticket(BOARDS[1])
    played = boards.roll_out(source)
    assert played.code == 0, played.output
    assert boards.ticket(BOARDS[1]) == ticket
    assert boards.versions() == {"1.4.0"}
    boards.wait_until_all_are_in()
