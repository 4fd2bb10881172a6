"""What the gateway's host is told and tells: its own checks, and Prometheus over the fleet."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.fleet.control_host import API_KEY, FAILED
from tests.fleet.rollout_fleet import BOARDS, RolloutFleet

ASK = """
import sys, urllib.request
try:
    print(urllib.request.urlopen("http://127.0.0.1:9090/api/v1/" + sys.argv[1], timeout=10).read().decode())
except OSError:
    print('{"data": {}}')
"""


def test_check_mode_leaves_a_bare_gateway_as_it_is(boards: RolloutFleet) -> None:
    assert boards.bare_gateway_check.code == 0, boards.bare_gateway_check.output
    assert boards.left_by_bare_gateway_check == ""


def test_a_second_run_of_the_gateway_changes_nothing(boards: RolloutFleet) -> None:
    played = boards.play("gateway")
    assert played.code == 0, played.output
    assert all(row.changed == 0 for row in played.recap.values()), played.changed_tasks
    assert "DEPRECATION WARNING" not in played.output  # the next Ansible takes the roles as they are


@pytest.mark.thorough
def test_a_board_that_leaves_the_inventory_and_comes_back_costs_no_request(boards: RolloutFleet) -> None:
    with boards.client() as client:
        client.wait_for_answers(2, boards.gateway.wait_for)
        boards.write_inventory(BOARDS[:2])
        try:
            fewer = boards.play("gateway")
        finally:
            boards.write_inventory()
        assert fewer.code == 0, fewer.output
        assert set(boards.statuses()) == {*BOARDS[:2]}
        client.wait_for_answers(2, boards.gateway.wait_for)
        added = boards.play("gateway")
        assert added.code == 0, added.output
        assert set(boards.statuses()) == {*BOARDS}
        boards.wait_until_all_are_in()
        client.wait_for_answers(2, boards.gateway.wait_for)
    assert client.failures == []


@pytest.mark.thorough
def test_what_the_gateway_refuses_is_said_and_a_hash_is_not(boards: RolloutFleet) -> None:
    played = boards.play("gateway", gateway_stats_address="0.0.0.0")
    assert played.code == FAILED
    assert "0.0.0.0 is reachable from outside; set gateway_stats_password_hash" in played.output
    played = boards.play("gateway", edgellm_settings={"admission": {"queue_timeout_seconds": 900}})
    assert played.code == FAILED
    assert (
        "gateway_queue_timeout_seconds: 600 is less than admission.queue_timeout_seconds of a board, 900"
        in played.output
    )
    planted = "planted-instead-of-a-hash"
    played = boards.play("gateway", gateway_stats_password_hash=planted)
    assert played.code == FAILED
    assert "not a hash as openssl passwd -6 prints it" in played.output
    assert planted not in played.output


@pytest.mark.thorough
def test_prometheus_watches_every_board(boards: RolloutFleet) -> None:
    variables: dict[str, Any] = {"observability_board_key": API_KEY, "observability_scrape_seconds": 1}
    foreseen = boards.control.play("observability", "--check", variables=variables)
    assert foreseen.code == 0, foreseen.output
    assert "edgellm" not in boards.gateway.run("ls", "/etc/prometheus").output
    played = boards.play("observability", "-vvv", **variables)
    assert played.code == 0, played.output
    assert API_KEY not in played.output

    def prometheus(what: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(boards.gateway.run("python3", "-c", ASK, what).output)["data"]
        return answer

    def targets() -> dict[str, str]:
        """Not by a query for ``up``: that still has those of the configuration that the package brought."""
        found = prometheus("targets?state=active").get("activeTargets", [])
        return {target["labels"]["instance"]: target["health"] for target in found}

    def rules() -> dict[str, str]:
        groups = prometheus("rules").get("groups", [])
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    wanted = {*BOARDS, "127.0.0.1:8404", "127.0.0.1:9090"}
    boards.gateway.wait_for(lambda: targets() == dict.fromkeys(wanted, "up"), "scrapes of all")
    boards.gateway.wait_for(lambda: {*rules().values()} == {"ok"}, "rules that could be evaluated")
    again = boards.play("observability", **variables)
    assert again.code == 0, again.output
    assert all(row.changed == 0 for row in again.recap.values()), again.changed_tasks
