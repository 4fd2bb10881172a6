"""What the gateway's host is told and tells: its own checks, and Prometheus over the fleet."""

from __future__ import annotations

import json
import re
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fleet.control_host import API_KEY, FAILED
from tests.fleet.rollout_fleet import BOARDS, GATEWAY_CERTIFICATE, RolloutFleet

from edgellm.service.private_ca import PrivateCa

CONFIGURATION = "/etc/haproxy/haproxy.cfg"
PROMETHEUS = "/etc/prometheus/prometheus.yml"
GRAFANA_UNIT = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
SERVED = "/etc/haproxy/edgellm/gateway.pem"

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


def running_configuration(boards: RolloutFleet) -> str:
    """The digest that HAProxy itself tells."""
    shown = boards.gateway.run("/usr/local/lib/edgellm/haproxy-runtime", "ask", "/run/haproxy/admin.sock", "show info")
    return re.findall(r"configuration (\w+)", shown.output)[0]


def test_a_reload_that_a_run_left_out_is_made_by_the_next(boards: RolloutFleet) -> None:
    """As a run leaves it that breaks off once the files are written."""
    before, was = boards.gateway.read(CONFIGURATION), running_configuration(boards)
    with boards.client() as client:
        changed = boards.play("gateway", gateway_sticky_minutes=31)
        assert changed.code == 0, changed.output
        wanted, holds = boards.gateway.read(CONFIGURATION), running_configuration(boards)
        assert holds != was
        for text in (before, wanted):
            boards.gateway.run("tee", CONFIGURATION, stdin=text)
            if text == before:
                boards.gateway.run("systemctl", "reload", "haproxy")
                boards.gateway.wait_for(lambda: running_configuration(boards) == was, "the configuration of before")
        mended = boards.play("gateway", gateway_sticky_minutes=31)
        assert mended.code == 0, mended.output
        assert running_configuration(boards) == holds
        back = boards.play("gateway")
        assert back.code == 0, back.output
        boards.wait_until_all_are_in()
        client.wait_for_answers(1, boards.gateway.wait_for)
    assert running_configuration(boards) == was
    assert client.failures == []


@pytest.mark.thorough
def test_a_certificate_that_haproxy_does_not_take_leaves_the_one_that_serves(
    boards: RolloutFleet, tmp_path: Path
) -> None:
    serves = boards.gateway.read(SERVED)
    one, other = PrivateCa(tmp_path / "one"), PrivateCa(tmp_path / "other")
    for authority in (one, other):
        authority.init(["gateway1"])
    key = other.server_key.read_text()
    refused = boards.play(
        "gateway", "-vvv", gateway_tls_certificate=one.server_certificate.read_text(), gateway_tls_key=key
    )
    assert refused.code == FAILED
    assert "gateway_tls_certificate, gateway_tls_key: HAProxy does not take them" in refused.output
    assert "inconsistencies between private key and certificate" in refused.output
    assert [line for line in key.splitlines() if not line.startswith("-") and line in refused.output] == []
    refused = boards.play("gateway", gateway_board_authorities="no certificate")
    assert "gateway_board_authorities: HAProxy does not take them" in refused.output
    assert boards.gateway.read(SERVED) == serves
    again = boards.play("gateway")
    assert all(row.changed == 0 for row in again.recap.values()), again.changed_tasks


@pytest.mark.thorough
def test_a_certificate_of_its_own_is_made_anew_for_further_names_and_where_it_is_damaged(boards: RolloutFleet) -> None:
    name = "llm.example.org"
    further = boards.play("gateway", gateway_names=[name])
    assert further.code == 0, further.output
    assert f"gateway.crt does not have {name}" in further.output
    trusted = ssl.create_default_context(cafile=boards.gateway.root / GATEWAY_CERTIFICATE)
    (certificate,) = trusted.get_ca_certs()
    assert ("DNS", name) in certificate["subjectAltName"]
    kept = boards.play("gateway")  # it has more names than are wanted now
    assert "a certificate was made" not in kept.output
    boards.gateway.run("tee", SERVED, stdin="damaged")
    mended = boards.play("gateway")
    assert mended.code == 0, mended.output
    with boards.client() as client:
        client.wait_for_answers(1, boards.gateway.wait_for)
    assert client.failures == []
    again = boards.play("gateway")
    assert all(row.changed == 0 for row in again.recap.values()), again.changed_tasks


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
    # A configuration that was written and not taken on.
    board = f"{BOARDS[0]}-of-before"
    wanted_file = boards.gateway.read(PROMETHEUS)
    boards.gateway.run("tee", PROMETHEUS, stdin=wanted_file.replace(f'"{BOARDS[0]}"', f'"{board}"'))
    boards.gateway.run("systemctl", "reload", "prometheus")
    boards.gateway.wait_for(lambda: board in targets(), "the configuration of before")
    boards.gateway.run("tee", PROMETHEUS, stdin=wanted_file)
    mended = boards.play("observability", **variables)
    assert mended.code == 0, mended.output
    boards.gateway.wait_for(lambda: targets().keys() == wanted, "the boards of the configuration")


@pytest.mark.thorough
def test_grafana_gets_data_source_and_dashboard(boards: RolloutFleet) -> None:
    """Grafana itself is no package of Debian: its user, folders and unit are there, and a program that only runs."""
    gateway, variables = boards.gateway, {"observability_board_key": API_KEY, "observability_grafana": True}
    refused = boards.play("observability", **variables)
    assert refused.code == FAILED
    assert "observability_grafana: Grafana is not installed on gateway1" in refused.output
    gateway.run("useradd", "--system", "grafana")
    for kind in ("datasources", "dashboards"):
        gateway.run("mkdir", "-p", f"/etc/grafana/provisioning/{kind}")
    gateway.run("mkdir", "-p", "/var/lib/grafana")
    gateway.write("/etc/systemd/system/grafana-server.service", GRAFANA_UNIT)
    gateway.run("systemctl", "daemon-reload")
    gateway.run("systemctl", "start", "grafana-server")
    before = gateway.unit("grafana-server", "MainPID")
    played = boards.play("observability", **variables)
    assert played.code == 0, played.output
    assert gateway.unit("grafana-server", "MainPID") != before
    source = yaml.safe_load(gateway.read("/etc/grafana/provisioning/datasources/edgellm.yml"))
    assert source["datasources"][0]["url"] == "http://127.0.0.1:9090"
    provider = yaml.safe_load(gateway.read("/etc/grafana/provisioning/dashboards/edgellm.yml"))["providers"][0]
    dashboard = json.loads(gateway.read(f"{provider['options']['path']}/edgellm-dashboard.json"))
    # Panels name their data source, which is the one that is there.
    named = {panel["datasource"]["uid"] for panel in dashboard["panels"] if "datasource" in panel}
    assert all(uid.startswith("${") or uid == source["datasources"][0].get("uid") for uid in named), named
    again = boards.play("observability", **variables)
    assert all(row.changed == 0 for row in again.recap.values()), again.changed_tasks
