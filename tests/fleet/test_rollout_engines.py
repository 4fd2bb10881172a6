"""A release that needs other engines: each is built once in the fleet, and no board leaves the gateway before."""

from __future__ import annotations

from tests.fleet.control_host import FAILED
from tests.fleet.rollout_fleet import BOARDS, RolloutFleet
from tests.service.conftest import Say


def test_a_release_that_builds_nothing_stops_before_a_board_leaves(boards: RolloutFleet) -> None:
    before, builds = boards.versions(), boards.builds()
    with boards.client() as client:
        client.wait_for_answers(1, boards.gateway.wait_for)
        played = boards.roll_out(boards.release_that_builds_nothing("1.9.0", layout=2))
    assert played.code == FAILED
    assert "built to fail" in played.output
    assert client.failures == []
    assert (boards.versions(), boards.builds()) == (before, builds)
    assert set(boards.statuses().values()) == {"UP"}
    assert "built to fail" in boards.report_file(BOARDS[0]).read_text()
    for name in BOARDS:
        assert "out_of_gateway" not in {
            step for step, _ in boards.steps(name) if boards.record(name)["outcome"] != "done"
        }
        assert "1.9.0" not in boards.boards[name].device.run("ls", "/opt/edgellm-releases", check=False).output


def test_an_engine_that_a_release_needs_is_built_once_while_all_serve(boards: RolloutFleet, say: Say) -> None:
    before = boards.builds()
    with boards.client() as client:
        client.wait_for_answers(1, boards.gateway.wait_for)
        played = boards.roll_out(boards.release_of_other_engines("1.9.1", layout=3))
        client.wait_for_answers(1, boards.gateway.wait_for)
    assert played.code == 0, played.output
    assert client.failures == []
    assert boards.versions() == {"1.9.1"}
    assert not boards.report_file(BOARDS[0]).exists()  # of the one before
    built = {name: count - before[name] for name, count in boards.builds().items()}
    assert built == {BOARDS[0]: 1, BOARDS[1]: 0, BOARDS[2]: 0}
    for name in BOARDS:
        steps = boards.steps(name)
        assert steps.index(("staged", "done")) < steps.index(("out_of_gateway", "begun"))
    down = ", ".join(f"{boards.record(name)['report']['downtime_seconds']:.1f}" for name in BOARDS)
    say(f"rollout with one engine built: {played.seconds:.0f} s, {client.answered} answered; out of service: {down} s")
    boards.wait_until_all_are_in()
