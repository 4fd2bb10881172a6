"""Releases go out board by board while clients are served, and what fails leaves the service as it was."""

from __future__ import annotations

import os

import pytest
from tests.fleet.control_host import FAILED
from tests.fleet.rollout_fleet import BOARDS, STEPS, RolloutFleet
from tests.service.conftest import Say

MACHINE_MEMORY_MB = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1_000_000
EVERY_STEP = [(step, state) for step in STEPS for state in ("begun", "done")]


def test_a_release_goes_out_without_a_failed_request(boards: RolloutFleet, say: Say) -> None:
    direct = {name: boards.client(boards.boards[name].device.address) for name in BOARDS}
    with boards.client() as through_gateway, direct[BOARDS[0]], direct[BOARDS[1]], direct[BOARDS[2]]:
        through_gateway.wait_for_answers(2, boards.gateway.wait_for)
        played = boards.roll_out(boards.release("1.0.0"))
        assert played.code == 0, played.output
        through_gateway.wait_for_answers(2, boards.gateway.wait_for)
    assert through_gateway.failures == []
    gaps = ", ".join(f"{one.longest_gap_seconds:.1f}" for one in direct.values())
    down = ", ".join(f"{boards.record(name)['report']['downtime_seconds']:.1f}" for name in BOARDS)
    say(f"rollout to {len(BOARDS)} boards: {played.seconds:.0f} s; longest gap of direct clients, by board: {gaps} s")
    say(f"out of service by the boards' own reports: {down} s")
    say(f"through the gateway: {through_gateway.answered} answered, {len(through_gateway.failures)} failed")
    for name in BOARDS:
        assert boards.steps(name) == EVERY_STEP
        assert boards.record(name)["outcome"] == "done"
    assert boards.versions() == {"1.0.0"}
    boards.wait_until_all_are_in()
    again = boards.roll_out(boards.release("1.0.0"))
    assert again.code == 0, again.output
    assert all(row.changed == 0 for row in again.recap.values()), again.changed_tasks


@pytest.mark.thorough
@pytest.mark.parametrize("playbook", ["rollout", "rollback"])
def test_check_mode_of_a_rollout_leaves_boards_and_gateway_alone(boards: RolloutFleet, playbook: str) -> None:
    before = boards.versions(), [boards.record(name) for name in BOARDS]
    source = {"rollout_source": str(boards.release("1.0.9"))} if playbook == "rollout" else {}
    with boards.client() as client:
        played = boards.play(playbook, "--check", **source)
        client.wait_for_answers(2, boards.gateway.wait_for)
    assert played.code == 0, played.output
    assert client.failures == []
    assert (boards.versions(), [boards.record(name) for name in BOARDS]) == before
    assert set(boards.statuses().values()) == {"UP"}
    for board in boards.boards.values():
        assert board.device.run("test", "-e", "/var/lib/edgellm-host/incoming", check=False).code == 1


def test_a_broken_release_is_taken_back_and_the_service_stays(boards: RolloutFleet, say: Say) -> None:
    before, records = boards.versions(), [boards.record(name) for name in BOARDS]
    with boards.client() as client:
        client.wait_for_answers(2, boards.gateway.wait_for)
        played = boards.roll_out(boards.broken_release("1.1.0"))
        client.wait_for_answers(2, boards.gateway.wait_for)
    assert played.code == FAILED
    assert client.failures == []
    assert boards.versions() == before
    boards.wait_until_all_are_in()
    assert boards.record(BOARDS[0])["outcome"] == "failed"
    assert boards.steps(BOARDS[0])[-1] == ("ready", "failed")
    assert [boards.record(name) for name in BOARDS[1:]] == records[1:]  # the canary alone was tried
    assert f"{BOARDS[0]}: ready failed" in played.output
    assert "built to end" in played.output  # the journal's reason
    say(f"broken release: found and taken back in {played.seconds:.0f} s, {client.answered} answers meanwhile")


@pytest.mark.thorough
def test_a_rollback_brings_the_release_of_before(boards: RolloutFleet, say: Say) -> None:
    before = {name: boards.version(name) for name in BOARDS}
    brought = boards.roll_out(boards.release("1.8.0"), rollout_batches=[len(BOARDS)])
    assert brought.code == 0, brought.output
    with boards.client() as client:
        played = boards.play("rollback")
        assert played.code == 0, played.output
        client.wait_for_answers(2, boards.gateway.wait_for)
    assert client.failures == []
    assert {name: boards.version(name) for name in BOARDS} == before
    say(f"rollback of {len(BOARDS)} boards: {played.seconds:.0f} s, {client.answered} answers meanwhile")


@pytest.mark.thorough
def test_a_rollback_goes_to_a_release_that_is_named_and_to_no_other(boards: RolloutFleet) -> None:
    name, limit = BOARDS[0], BOARDS[:1]
    was = boards.version(name)
    for version, kept in (("1.0.1", was), ("1.0.2", "1.0.1"), ("1.0.3", "1.0.2")):
        brought = boards.roll_out(boards.release(version), limit=limit)
        assert brought.code == 0, brought.output
        assert boards.kept(name)[-1] == kept
    assert boards.kept(name) == ["1.0.1", "1.0.2"]  # two, and no more on its disk
    assert len(boards.boards[name].device.run("ls", "/opt/edgellm-releases").output.split()) == 3
    for gone in (was, "9.9.9"):
        refused = boards.play("rollback", rollout_release=gone, limit=limit)
        assert refused.code == FAILED
        assert f"no release {gone} is kept on this machine" in refused.output
        assert boards.version(name) == "1.0.3"
    played = boards.play("rollback", rollout_release="1.0.1", limit=limit)
    assert played.code == 0, played.output
    assert boards.version(name) == "1.0.1"
    assert boards.kept(name) == ["1.0.2", "1.0.3"]
    boards.wait_until_all_are_in()


def test_verify_shows_the_fleet_in_one_table(boards: RolloutFleet) -> None:
    played = boards.play("verify")
    assert played.code == 0, played.output
    for name in BOARDS:
        row = played.table_row(name)
        assert (row["ready"], row["version"], row["engines"]) == ("yes", boards.version(name), "1")
        assert (row["release"], row["models"]) == (boards.release_id(name), "smollm2-135m-instruct")
        assert float(row["tokens/s"]) > 0
        assert 0 < int(row["free MB"]) < MACHINE_MEMORY_MB
        assert (row["image"], row["power mode"]) == ("-", "-")  # neither container nor Jetson
    assert all(row.changed == 0 for row in played.recap.values())
