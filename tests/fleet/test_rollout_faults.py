"""What goes wrong while releases go out stays with the board that it went wrong on, and the next run mends it."""

from __future__ import annotations

import json

import pytest
from tests.fleet.control_host import FAILED, UNREACHABLE
from tests.fleet.rollout_fleet import BOARDS, DEADLINE_SECONDS, GATEWAY, RolloutFleet
from tests.lab.small_disk import small_disk


def test_a_full_disk_leaves_a_board_as_it_was(boards: RolloutFleet) -> None:
    board = boards.boards[BOARDS[0]]
    before = boards.versions()
    with small_disk(board.device, "/opt/edgellm-releases", "1M"):
        played = boards.roll_out(boards.release("1.2.0"))
    assert played.code == FAILED
    assert "are free" in played.output
    assert boards.versions() == before
    boards.wait_until_all_are_in()


def test_a_gateway_out_of_reach_is_told_before_a_board_is_touched(boards: RolloutFleet) -> None:
    before, records = boards.versions(), [boards.record(name) for name in BOARDS]
    with boards.control.refused_key(boards.gateway):
        played = boards.roll_out(boards.release("1.6.1"))
    assert played.code == FAILED
    assert f"the gateway {GATEWAY} cannot be told to take a board out" in " ".join(played.output.split())
    assert (boards.versions(), [boards.record(name) for name in BOARDS]) == (before, records)
    assert {row.unreachable for row in played.recap.values()} == {0}


@pytest.mark.thorough
def test_a_board_that_boots_in_between_goes_on(boards: RolloutFleet) -> None:
    board = boards.boards[BOARDS[0]]
    before = boards.ticket(BOARDS[0])
    source = boards.release("1.3.0")
    started = boards.control.start("rollout", "-e", f"rollout_source={source}", "--limit", BOARDS[0])
    boards.wait_until_begun(BOARDS[0], "switched", before)
    board.device.power_cut()
    board.boot()
    output, _ = started.communicate(timeout=DEADLINE_SECONDS)
    assert started.returncode == 0, output
    assert boards.version(BOARDS[0]) == "1.3.0"
    boards.wait_until_all_are_in()


@pytest.mark.thorough
def test_a_board_out_of_reach_stops_the_run_which_goes_on_later(boards: RolloutFleet) -> None:
    board = boards.boards[BOARDS[1]]
    source, before, two = boards.release("1.5.0"), boards.ticket(BOARDS[1]), BOARDS[:2]
    started = boards.control.start(
        *("rollout", "--limit", ",".join(two)),
        *("-e", json.dumps({"rollout_source": str(source), "rollout_absence_seconds": 5})),
    )
    boards.wait_until_begun(BOARDS[1], "switched", before)
    board.device.power_cut()
    output, _ = started.communicate(timeout=DEADLINE_SECONDS)
    assert started.returncode == FAILED
    assert "out of reach, and out of the gateway" in output
    assert boards.version(BOARDS[0]) == "1.5.0"
    assert boards.statuses()[BOARDS[1]] == "MAINT"
    board.boot().wait_until_active()
    played = boards.roll_out(source, limit=two)
    assert played.code == 0, played.output
    assert {boards.version(name) for name in two} == {"1.5.0"}
    boards.wait_until_all_are_in()


@pytest.mark.thorough
def test_a_board_that_dies_during_a_rollout_loses_the_request_it_was_at_alone(boards: RolloutFleet) -> None:
    source, before, was = boards.release("1.7.0"), boards.ticket(BOARDS[0]), boards.version(BOARDS[0])
    with boards.client() as one, boards.client() as other:
        started = boards.control.start("rollout", "-e", f"rollout_source={source}", "--limit", BOARDS[0])
        boards.wait_until_begun(BOARDS[0], "switched", before)
        one.wait_for_answers(1, boards.gateway.wait_for)
        victim = boards.boards[boards.asked_board()]
        assert victim.device.name != BOARDS[0]  # it is out
        victim.device.power_cut()
        for client in (one, other):
            client.wait_for_answers(2, boards.gateway.wait_for)
        output, _ = started.communicate(timeout=DEADLINE_SECONDS)
        victim.boot().wait_until_active()
        boards.wait_until_all_are_in()
    assert started.returncode == 0, output
    assert boards.version(BOARDS[0]) == "1.7.0"
    assert len(one.failures) <= 1, one.failures
    assert len(other.failures) <= 1, other.failures
    assert boards.kept(BOARDS[0])[-1] == was


@pytest.mark.thorough
@pytest.mark.parametrize("fault", ["strange_key", "refused_key"])
def test_a_board_that_ssh_does_not_reach_is_left_alone_and_serves_on(boards: RolloutFleet, fault: str) -> None:
    board = boards.boards[BOARDS[0]].device
    before, record = boards.versions(), boards.record(BOARDS[0])
    with boards.client() as client, getattr(boards.control, fault)(board):
        played = boards.roll_out(boards.release("1.6.0"))
        client.wait_for_answers(2, boards.gateway.wait_for)
    assert played.code == UNREACHABLE
    assert client.failures == []
    assert played.recap[BOARDS[0]].unreachable == 1
    assert f"{BOARDS[0]} did not get ready: the run stops before any board leaves" in " ".join(played.output.split())
    reason = "REMOTE HOST IDENTIFICATION HAS CHANGED" if fault == "strange_key" else "Permission denied"
    assert reason in played.output
    assert (boards.versions(), boards.record(BOARDS[0])) == (before, record)
    assert set(boards.statuses().values()) == {"UP"}


@pytest.mark.thorough
def test_verify_names_a_board_that_is_out_of_reach(boards: RolloutFleet) -> None:
    with boards.control.refused_key(boards.boards[BOARDS[1]].device):
        played = boards.play("verify")
    assert played.code == FAILED
    assert f"{BOARDS[1]} does not serve: out of reach" in played.output
    for name in (BOARDS[0], BOARDS[2]):
        assert played.table_row(name)["ready"] == "yes"
    assert played.table_row(BOARDS[1])["ready"] == "NO"
