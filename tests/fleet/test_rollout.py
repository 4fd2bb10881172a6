"""Releases go out board by board while clients are served, and what fails leaves the service as it was."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fleet.rollout_fleet import BOARDS, DEADLINE_SECONDS, KEY, RolloutFleet
from tests.lab.bridge import Bridge
from tests.service.appliance import build_wheel
from tests.service.conftest import Say

pytestmark = pytest.mark.system

STEPS = ("out_of_gateway", "drained", "staged", "switched", "ready", "smoke", "back_in")
EVERY_STEP = [(step, state) for step in STEPS for state in ("begun", "done")]


@pytest.fixture(scope="module")
def boards(fleet_rootfs: Path, model_folder: Path) -> Iterator[RolloutFleet]:
    """Three that serve, behind a gateway."""
    with tempfile.TemporaryDirectory(prefix="edgellm-roll-") as name:
        folder = Path(name)
        bridge = Bridge(folder.name).up()
        try:
            made = RolloutFleet(folder, bridge, fleet_rootfs, build_wheel(folder / "wheel"), model_folder)
            try:
                yield made.serve()
            finally:
                made.remove()
        finally:
            bridge.remove()


@pytest.fixture(autouse=True)
def _journals(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that fails shows what its devices wrote last."""
    failed_before = request.session.testsfailed
    yield
    if request.session.testsfailed > failed_before and "boards" in request.fixturenames:
        print(request.getfixturevalue("boards").journals())


def test_a_release_goes_out_without_a_failed_request(boards: RolloutFleet, say: Say) -> None:
    direct = {name: boards.client(boards.boards[name].device.address) for name in BOARDS}
    with boards.client() as through_gateway, direct[BOARDS[0]], direct[BOARDS[1]], direct[BOARDS[2]]:
        through_gateway.wait_for_answers(2, boards.gateway.wait_for)
        played = boards.roll_out(boards.release("1.0.0"))
        assert played.code == 0, played.output
        through_gateway.wait_for_answers(2, boards.gateway.wait_for)
    assert through_gateway.failures == []
    gaps = ", ".join(f"{one.longest_gap_seconds:.1f}" for one in direct.values())
    say(f"rollout to {len(BOARDS)} boards: {played.seconds:.0f} s; longest gap of direct clients, by board: {gaps} s")
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


def test_a_full_disk_leaves_a_board_as_it_was(boards: RolloutFleet) -> None:
    board = boards.boards[BOARDS[0]]
    before = boards.versions()
    board.device.run("mkdir", "-p", "/opt/edgellm-releases")
    board.device.run("mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", "/opt/edgellm-releases")
    try:
        played = boards.roll_out(boards.release("1.2.0"))
    finally:
        board.device.run("umount", "--lazy", "/opt/edgellm-releases")
    assert played.code != 0
    assert "are free" in played.output
    assert boards.versions() == before
    boards.wait_until_all_are_in()


def test_a_board_that_boots_in_between_goes_on(boards: RolloutFleet) -> None:
    board = boards.boards[BOARDS[0]]
    started = boards.control.start("rollout", "-e", f"rollout_source={boards.release('1.3.0')}")
    boards.gateway.wait_for(lambda: ("switched", "begun") in boards.steps(BOARDS[0]), "the switch", DEADLINE_SECONDS)
    board.device.power_cut()
    board.boot()
    output, _ = started.communicate(timeout=DEADLINE_SECONDS)
    assert started.returncode == 0, output
    assert boards.versions() == {"1.3.0"}
    boards.wait_until_all_are_in()


def test_a_run_that_was_interrupted_goes_on_where_it_was(boards: RolloutFleet) -> None:
    source = boards.release("1.4.0")
    for step in STEPS[:-1]:
        started = boards.control.start("rollout", "-e", f"rollout_source={source}", "--limit", BOARDS[1])
        boards.gateway.wait_for(lambda step=step: (step, "begun") in boards.steps(BOARDS[1]), step, DEADLINE_SECONDS)
        started.kill()
        started.communicate()
    ticket = boards.record(BOARDS[1])["ticket"]
    played = boards.roll_out(source)
    assert played.code == 0, played.output
    assert boards.record(BOARDS[1])["ticket"] == ticket
    assert boards.versions() == {"1.4.0"}
    boards.wait_until_all_are_in()


def test_a_board_out_of_reach_stops_the_run_which_goes_on_later(boards: RolloutFleet) -> None:
    board = boards.boards[BOARDS[1]]
    source = boards.release("1.5.0")
    started = boards.control.start(
        "rollout", "-e", json.dumps({"rollout_source": str(source), "rollout_absence_seconds": 5})
    )
    boards.gateway.wait_for(lambda: ("staged", "begun") in boards.steps(BOARDS[1]), "the staging", DEADLINE_SECONDS)
    board.device.power_cut()
    output, _ = started.communicate(timeout=DEADLINE_SECONDS)
    assert started.returncode != 0
    assert "out of reach, and out of the gateway" in output
    assert boards.version(BOARDS[0]) == "1.5.0"
    assert boards.statuses()[BOARDS[1]] == "MAINT"
    board.boot().wait_until_active()
    played = boards.roll_out(source)
    assert played.code == 0, played.output
    assert boards.versions() == {"1.5.0"}
    boards.wait_until_all_are_in()


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


def test_prometheus_watches_every_board(boards: RolloutFleet) -> None:
    variables = {"observability_board_key": KEY, "observability_scrape_seconds": 1}
    played = boards.play("observability", **variables)
    assert played.code == 0, played.output
    ask = "import json, urllib.request as r; print(r.urlopen('http://127.0.0.1:9090/api/v1/query?query=up').read().decode())"

    def up() -> dict[str, str]:
        rows = json.loads(boards.gateway.run("python3", "-c", ask, check=False).output or "{}")
        return {row["metric"]["instance"]: row["value"][1] for row in rows["data"]["result"]}

    wanted = {*BOARDS, "127.0.0.1:8404", "127.0.0.1:9090"}
    boards.gateway.wait_for(lambda: up() == dict.fromkeys(wanted, "1"), "scrapes of all")
    again = boards.play("observability", **variables)
    assert all(row.changed == 0 for row in again.recap.values()), again.changed_tasks
