"""A rollout whose control host died goes on where it was, at whatever step."""

from __future__ import annotations

import signal

import pytest
from tests.fleet.rollout_fleet import BOARDS, STEPS, RolloutFleet


@pytest.mark.thorough
@pytest.mark.parametrize("step", STEPS)
def test_a_run_goes_on_from_the_step_that_the_control_host_died_after(boards: RolloutFleet, step: str) -> None:
    """Each goes on from where the one before it ended, to the step after."""
    board, source = BOARDS[0], boards.release("2.0.0")
    before = boards.record(board)
    with boards.client() as client:
        ended = boards.roll_out_until(step, board, source)
        client.wait_for_answers(1, boards.gateway.wait_for)
    assert ended.code == -signal.SIGKILL, ended.output
    assert client.failures == []
    record = boards.record(board)
    assert boards.steps(board)[-1] == (step, "done")
    if before.get("outcome") == "under way":
        assert record["ticket"] == before["ticket"]
        assert record["steps"][: len(before["steps"])] == before["steps"]
        assert f"goes on with {record['wanted']} after {before['steps'][-1]['step']}" in ended.output
    if step != STEPS[-1]:
        assert (record["outcome"], boards.statuses()[board]) == ("under way", "MAINT")
        return
    assert record["outcome"] == "done"
    assert boards.version(board) == "2.0.0"
    boards.wait_until_all_are_in()


def test_a_run_that_was_interrupted_in_the_middle_of_each_step_goes_on(boards: RolloutFleet) -> None:
    source, before = boards.release("1.4.0"), boards.ticket(BOARDS[1])
    for step in STEPS:
        started = boards.control.start("rollout", "-e", f"rollout_source={source}", "--limit", BOARDS[1])
        boards.wait_until_begun(BOARDS[1], step, before)
        started.kill()
        started.communicate()
    ticket = boards.ticket(BOARDS[1])
    played = boards.roll_out(source, limit=[BOARDS[1]])
    assert played.code == 0, played.output
    assert boards.ticket(BOARDS[1]) == ticket
    assert boards.version(BOARDS[1]) == "1.4.0"
    boards.wait_until_all_are_in()
