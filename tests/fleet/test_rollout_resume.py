"""A rollout whose control host died goes on where it was, at whatever step."""

from __future__ import annotations

import signal

import pytest
from tests.fleet.control_host import FAILED
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
        # Until it is staged it serves.
        assert (record["outcome"], boards.statuses()[board]) == ("under way", "UP" if step == STEPS[0] else "MAINT")
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


def test_a_rollback_undoes_what_a_rollout_changed_or_began_and_no_more(boards: RolloutFleet) -> None:
    """One board was cut short before it was switched, one after: its upgrade went on by itself. One was not in it."""
    before, source = {name: boards.version(name) for name in BOARDS}, boards.release("1.8.1")
    assert boards.record(BOARDS[2])["outcome"] == "done"  # of an earlier one, which is left alone
    for name, step in ((BOARDS[0], "drained"), (BOARDS[1], "ready")):
        ended = boards.roll_out_until(step, name, boards.relative(source))
        assert ended.code == -signal.SIGKILL, ended.output
    assert {boards.statuses()[name] for name in BOARDS[:2]} == {"MAINT"}
    with boards.client() as client:
        played = boards.play("rollback")
        client.wait_for_answers(1, boards.gateway.wait_for)
    assert played.code == 0, played.output
    assert client.failures == []
    assert f"{BOARDS[2]}: was not in the rollout of" in played.output
    assert {name: boards.version(name) for name in BOARDS} == before
    for name in BOARDS[:2]:
        assert (boards.record(name)["outcome"], boards.record(name)["is_rollback"]) == ("done", True)
    assert "1.8.1" not in boards.boards[BOARDS[0]].device.run("ls", "/opt/edgellm-releases", check=False).output
    boards.wait_until_all_are_in()
    again = boards.play("rollback")
    assert again.code == 0, again.output
    assert {name: boards.version(name) for name in BOARDS} == before


def test_a_release_that_is_not_there_is_named_in_full(boards: RolloutFleet) -> None:
    played = boards.roll_out("releases/absent.whl")
    assert played.code == FAILED
    assert f"{boards.control.folder}/releases/absent.whl is not on the control host" in " ".join(played.output.split())
