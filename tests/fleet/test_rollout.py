"""Releases go out board by board while clients are served, and what fails leaves the service as it was."""

from __future__ import annotations

from tests.fleet.rollout_fleet import BOARDS, STEPS, RolloutFleet
from tests.service.conftest import Say

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


def test_a_broken_release_is_taken_back_and_the_service_stays(boards: RolloutFleet, say: Say) -> None:
    before = boards.versions()
    with boards.client() as client:
        client.wait_for_answers(2, boards.gateway.wait_for)
        played = boards.roll_out(boards.broken_release("1.1.0"))
        client.wait_for_answers(2, boards.gateway.wait_for)
    assert played.code != 0
    assert client.failures == []
    assert boards.versions() == before
    boards.wait_until_all_are_in()
    assert boards.record(BOARDS[0])["outcome"] == "failed"
    assert boards.steps(BOARDS[0])[-1] == ("ready", "failed")
    assert not [step for name in BOARDS[1:] for step in boards.steps(name) if step[1] == "failed"]
    assert f"{BOARDS[0]}: ready failed" in played.output
    assert "built to end" in played.output  # the journal's reason
    say(f"broken release: found and taken back in {played.seconds:.0f} s, {client.answered} answers meanwhile")


def test_a_rollback_brings_the_release_of_before(boards: RolloutFleet, say: Say) -> None:
    before = boards.versions()
    with boards.client() as client:
        played = boards.play("rollback")
        assert played.code == 0, played.output
        client.wait_for_answers(2, boards.gateway.wait_for)
    assert client.failures == []
    assert not before & boards.versions()
    say(f"rollback of {len(BOARDS)} boards: {played.seconds:.0f} s, {client.answered} answers meanwhile")


def test_verify_shows_the_fleet_in_one_table(boards: RolloutFleet) -> None:
    played = boards.play("verify")
    assert played.code == 0, played.output
    (version,) = boards.versions()
    for name in BOARDS:
        row = next(line for line in played.output.splitlines() if f'"{name} ' in line)
        assert " yes " in row
        assert version in row
        assert "smollm2-135m-instruct" in row
    assert all(row.changed == 0 for row in played.recap.values())
