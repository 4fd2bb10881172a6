"""Who the gateway believes is a board, and who may read its statistics."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.gateway.conftest import KEYS, Board, addresses
from tests.gateway.gateway_process import GatewayProcess, get
from tests.gateway.traffic import chat

from edgellm.service.private_ca import PrivateCa

PASSWORD = "a-password-of-the-test"  # noqa: S105  # of this test alone


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> PrivateCa:
    return PrivateCa(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def board(gateway_tools: None, model_source: Path, keys_file: Path, authority: PrivateCa) -> Iterator[Board]:
    """It speaks HTTPS alone, with a certificate of its name."""
    tls = ("--tls-certificate-file", str(authority.server_certificate), "--tls-key-file", str(authority.server_key))
    made = Board(9, model_source, "--api-keys-file", str(keys_file), *tls)
    try:
        authority.init([made.name])
        made.start()
        made.running.wait_for(lambda: "ready after" in made.running.log)
        yield made
    finally:
        made.remove()


def started(folder: Path, boards: dict[str, tuple[str, int]], **variables: object) -> GatewayProcess:
    return GatewayProcess(folder, boards, **variables).start()


def test_boards_are_believed_by_their_certificates(board: Board, authority: PrivateCa, tmp_path: Path) -> None:
    believed = authority.ca_certificate.read_text()
    impostor = "board-8"  # at the same address: the certificate has not its name
    gateway = started(tmp_path, {**addresses([board]), impostor: board.address}, gateway_board_authorities=believed)
    try:
        gateway.wait_for(lambda: gateway.statuses() == {board.name: "UP", impostor: "DOWN"}, "the checks")
        assert gateway.boards()[impostor]["check_status"] == "L6RSP"
        assert chat(gateway.url, KEYS["alice"]).status_code == 200
        other = PrivateCa(tmp_path / "other")
        other.init([board.name])
        gateway.configure(addresses([board]), gateway_board_authorities=other.ca_certificate.read_text())
        gateway.reload()
        gateway.wait_for(lambda: gateway.statuses() == {board.name: "DOWN"}, "a check by another authority")
        assert chat(gateway.url, KEYS["alice"]).status_code == 503
    finally:
        gateway.stop()


@pytest.mark.parametrize("way", ["reload", "start"])
def test_tls_and_port_of_a_board_come_from_the_configuration_and_who_is_out_from_before(
    board: Board, authority: PrivateCa, tmp_path: Path, way: str
) -> None:
    """Each was brought back by HAProxy's own state file: without TLS at the earlier port, a board was lost."""
    out, believed = "board-of-before", authority.ca_certificate.read_text()
    address, port = board.address
    gateway = started(tmp_path, {board.name: (address, port + 1), out: (address, port)})
    try:
        gateway.wait_for(lambda: gateway.statuses() == {board.name: "DOWN", out: "DOWN"}, "the checks")
        assert gateway.board_module(name=out, state="out")["status"] == "MAINT"
        gateway.configure({board.name: (address, port), out: (address, port)}, gateway_board_authorities=believed)
        if way == "reload":
            gateway.reload()
        else:
            gateway.stop()
            gateway.runtime("adapt", str(gateway.config), str(gateway.state_file))
            gateway.start()
        gateway.wait_for(lambda: gateway.statuses() == {board.name: "UP", out: "MAINT"}, "the board over TLS")
        assert chat(gateway.url, KEYS["alice"]).status_code == 200
        gateway.configure({out: (address, port), board.name: (address, port)}, gateway_board_authorities="")
        gateway.reload()
        gateway.wait_for(lambda: gateway.statuses() == {board.name: "DOWN", out: "MAINT"}, "a check without TLS")
    finally:
        gateway.stop()


def test_statistics_and_metrics_ask_for_the_password(gateway_tools: None, tmp_path: Path) -> None:
    made = subprocess.run(["openssl", "passwd", "-6", PASSWORD], capture_output=True, text=True, check=True)
    nowhere = {"board-7": ("127.0.0.1", 9)}
    gateway = started(tmp_path, nowhere, gateway_stats_password_hash=made.stdout.strip())
    try:
        for path in ("/", "/metrics"):
            url = f"http://127.0.0.1:{gateway.stats_port}{path}"
            assert get(url).status_code == 401
            assert get(url, auth=("operator", "another")).status_code == 401
            assert get(url, auth=("operator", PASSWORD)).status_code == 200
        assert PASSWORD not in gateway.config.read_text()
    finally:
        gateway.stop()
