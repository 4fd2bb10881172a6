"""Boards come and go by inventory, by hand and in a rollout while clients are served."""

from __future__ import annotations

import pytest
from tests.gateway.conftest import KEYS, Board, StartGateway, addresses
from tests.gateway.traffic import SteadyClient, chat, stream

NOWHERE = {"a-board-without-power": ("127.0.0.1", 9)}


def test_a_board_is_added_without_a_failed_request_and_streams_go_on(
    start_gateway: StartGateway, boards: list[Board]
) -> None:
    gateway = start_gateway(boards[:2], gateway_stickiness="none")
    with (
        stream(gateway.url, KEYS["alice"], 1500) as held,
        SteadyClient(gateway.url, KEYS["bob"]) as one,
        SteadyClient(gateway.url, KEYS["carol"]) as two,
    ):
        for served in (boards, boards[1:], boards):
            before = one.answered + two.answered
            gateway.configure(addresses(served))
            gateway.reload()
            gateway.wait_until_up(*(board.name for board in served))
            gateway.wait_for(lambda before=before: one.answered + two.answered > before + 4, "further answers")
        gateway.wait_for(lambda: all(gateway.requests().values()), "answers of every board")
        assert held.rest() == "length"
    assert one.failures == two.failures == []


def test_a_reload_keeps_clients_at_their_boards_and_who_is_out(
    start_gateway: StartGateway, boards: list[Board]
) -> None:
    gateway = start_gateway()
    for key in KEYS.values():
        assert chat(gateway.url, key).status_code == 200
    # A process that has just begun waits for what another may know, and does not hand on what it knows itself.
    gateway.wait_for(gateway.knows_its_clients, "the end of that")
    clients = {line.split("key=")[1].split()[0]: line.rsplit("server_key=")[1] for line in table_of(gateway)}
    assert len(clients) == len(KEYS)
    gateway.ask(f"set server boards/{boards[2].name} state maint")
    gateway.configure({**NOWHERE, **addresses(boards)})  # the others' numbers change
    gateway.reload()
    assert gateway.statuses()[boards[2].name] == "MAINT"
    gateway.wait_for(lambda: len(table_of(gateway)) == len(KEYS), "the clients of before")
    after = {line.split("key=")[1].split()[0]: line.rsplit("server_key=")[1] for line in table_of(gateway)}
    assert after == clients


def table_of(gateway: object) -> list[str]:
    shown: str = gateway.ask("show table boards")  # type: ignore[attr-defined]
    return [line for line in shown.splitlines() if "key=" in line]


def test_a_board_at_another_address_is_found_there(start_gateway: StartGateway, boards: list[Board]) -> None:
    gateway = start_gateway(boards[:1])
    moved = {boards[0].name: boards[1].address}
    gateway.configure(moved)
    gateway.reload()
    assert f" {boards[1].address[0]} " in gateway.ask("show servers state")
    assert chat(gateway.url, KEYS["alice"]).status_code == 200


def test_a_configuration_that_haproxy_refuses_changes_nothing(start_gateway: StartGateway, boards: list[Board]) -> None:
    gateway = start_gateway()
    before = gateway.config.read_text()
    with pytest.raises(AssertionError, match="unable to load"):
        gateway.configure(addresses(boards), gateway_board_authorities="not a certificate")
    assert gateway.config.read_text() == before


def test_a_board_is_taken_out_and_put_back_in(start_gateway: StartGateway, boards: list[Board]) -> None:
    gateway = start_gateway(boards[:2])
    with stream(gateway.url, KEYS["alice"], 300) as held:
        name = next(board.name for board in boards if gateway.in_flight(board.name))
        foreseen = gateway.board_module(name=name, state="out", check=True)
        assert foreseen["changed"]
        assert gateway.statuses()[name] == "UP"
        told = gateway.board_module(name=name, state="out", wait_seconds=0)
        assert told["changed"]
        assert told["status"] == "MAINT"
        assert told["in_flight"] == 1
        # Also the client that was there goes elsewhere, and what was begun there ends there.
        before = gateway.requests()
        assert chat(gateway.url, KEYS["alice"]).status_code == 200
        assert gateway.requests()[name] == before[name]
        waited = gateway.board_module(name=name, state="out")
        assert (waited["changed"], waited["in_flight"]) == (False, 0)
        assert held.rest() == "length"
    back = gateway.board_module(name=name, state="in")
    assert back["changed"]
    assert back["status"].startswith("UP")
    assert not gateway.board_module(name=name, state="in")["changed"]


def test_a_board_that_does_not_answer_is_not_put_back_in(start_gateway: StartGateway, boards: list[Board]) -> None:
    gateway = start_gateway(boards[:1])
    gateway.configure({**NOWHERE, **addresses(boards[:1])})
    gateway.reload()
    (name,) = NOWHERE
    gateway.board_module(name=name, state="out")
    told = gateway.board_module(name=name, state="in", wait_seconds=4)
    assert f"{name} is not ready by the gateway's check after 4 s" in told["msg"]
    unknown = gateway.board_module(name="unheard-of", state="out")
    assert "no such board in the gateway, which has: " in unknown["msg"]


def test_what_was_out_is_out_after_a_start_from_nothing(start_gateway: StartGateway, boards: list[Board]) -> None:
    gateway = start_gateway()
    gateway.board_module(name=boards[0].name, state="out")
    gateway.stop()
    gateway.start()
    assert gateway.statuses()[boards[0].name] == "MAINT"
    gateway.wait_until_up(boards[1].name, boards[2].name)
