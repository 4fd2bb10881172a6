"""Pairing with a real daemon over HTTPS: what a client gets, and what nobody else does."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.http.conftest import StartDaemon
from tests.http.daemon_process import MODEL, Daemon
from tests.http.test_command import edgellm

from edgellm.errors import BoardUnverifiedError, DaemonUnreachableError, PairingClosedError
from edgellm.service import private_ca
from edgellm.service.pairing import client as client_side
from edgellm.service.pairing.attempts import ATTEMPTS_OF_ADDRESS_MAX
from edgellm.service.pairing.boards import Board
from edgellm.service.pairing.client import BoardAddress, pair
from edgellm.service.pairing.code import PairingCode
from edgellm.service.private_ca import PrivateCa

RACERS = 4


class PairingBoard:
    """A daemon with keys and an authority of its own, which can lose its power."""

    def __init__(self, start_daemon: StartDaemon, folder: Path) -> None:
        self._start_daemon = start_daemon
        self.folder = folder
        self.authority = PrivateCa(folder / "tls")
        self.authority.init(["localhost", "127.0.0.1"])
        self.key = edgellm("keys", "add", "device", "--api-keys-file", str(folder / "keys")).stdout.strip()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.daemon = self.start()

    def start(self) -> Daemon:
        options = {
            "--host": "127.0.0.1",
            "--port": str(self.port),
            "--api-keys-file": str(self.folder / "keys"),
            "--tls-certificate-file": str(self.authority.server_certificate),
            "--tls-key-file": str(self.authority.server_key),
        }
        self.daemon = self._start_daemon(
            *(word for option in options.items() for word in option),
            authority=self.authority.ca_certificate,
            env={**os.environ, "EDGELLM_PAIRING_FOLDER": str(self.folder / "pairing")},
        )
        return self.daemon

    def power_cut(self) -> None:
        self.daemon.process.kill()
        self.daemon.process.wait()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def verb(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return edgellm(*arguments, "--admin-socket", str(self.daemon.admin_socket))

    def open_code(self) -> str:
        opened = self.verb("pair-code", "--json")
        assert opened.returncode == 0, opened.stderr
        code: str = json.loads(opened.stdout)["code"]
        return code

    def paired(self) -> list[str]:
        return [line.split()[0] for line in self.verb("paired", "list").stdout.splitlines()]

    def models_with(self, key: str) -> int:
        return httpx.get(
            f"{self.daemon.url}/v1/models", headers={"x-api-key": key}, verify=self.daemon.verify
        ).status_code


@pytest.fixture
def board(start_daemon: StartDaemon, tmp_path: Path) -> PairingBoard:
    return PairingBoard(start_daemon, tmp_path)


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a client with a configuration of its own."""
    return {"XDG_CONFIG_HOME": str(tmp_path / "client")}


def board_of(home: Mapping[str, str], board: PairingBoard) -> Board:
    return Board.at("127.0.0.1", board.port, home)


def test_a_paired_client_has_key_and_authority_and_chats(board: PairingBoard, home: dict[str, str]) -> None:
    code = board.open_code()
    paired = edgellm("pair", board.host, code, "--name", "laptop", **home)
    assert paired.returncode == 0, paired.stderr
    kept = board_of(home, board)
    assert kept.key_file.stat().st_mode & 0o777 == 0o600
    assert kept.folder.stat().st_mode & 0o777 == 0o700
    assert kept.authority_file.read_bytes() == board.authority.ca_certificate.read_bytes()
    assert kept.key() not in paired.stdout + paired.stderr
    http_client = httpx.Client(verify=ssl.create_default_context(cafile=kept.authority_file))
    url = f"{board.daemon.url}/v1"
    with openai.OpenAI(base_url=url, api_key=kept.key(), http_client=http_client, max_retries=0) as client:
        answer = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Say hello."}], max_tokens=8
        )
        assert answer.choices[0].message.content
    chat = edgellm("chat", "Hi", "--url", board.daemon.url, "--max-tokens", "4", **home)
    assert chat.returncode == 0, chat.stderr
    assert board.paired() == ["laptop"]
    assert not any(secret in board.daemon.log for secret in (code, kept.key()))
    revoked = board.verb("paired", "revoke", "laptop")
    assert revoked.returncode == 0, revoked.stderr
    assert board.models_with(kept.key()) == 401
    assert board.models_with(board.key) == 200


@pytest.mark.parametrize(
    ("begins", "problem"), [(timedelta(days=2), "is not valid yet"), (timedelta(days=-1_000), "is valid no more")]
)
def test_a_client_whose_clock_is_wrong_hears_of_the_clock(
    board: PairingBoard, home: dict[str, str], monkeypatch: pytest.MonkeyPatch, begins: timedelta, problem: str
) -> None:
    """As the client sees it: its clock says another year than the certificate."""
    code = board.open_code()
    assert edgellm("pair", board.host, code, **home).returncode == 0
    monkeypatch.setattr(private_ca, "CLOCK_SKEW", -begins)
    board.authority.init(["localhost", "127.0.0.1"])
    assert board.verb("reload").returncode == 0
    tried = [
        edgellm("pair", board.host, board.open_code(), XDG_CONFIG_HOME=str(board.folder / "other")),
        edgellm("chat", "Hi", "--url", board.daemon.url, **home),
    ]
    assert tried[0].returncode == 78
    for one in tried:
        assert one.returncode != 0
        assert f"{problem} by this machine's clock, which says {datetime.now(UTC):%Y-}" in one.stderr
        assert "— set the clock" in one.stderr
        assert "somebody" not in one.stderr
        assert one.stderr.count("\n") == 1


def test_a_used_code_is_used_also_after_a_power_cut(board: PairingBoard, home: dict[str, str], tmp_path: Path) -> None:
    code = board.open_code()
    assert edgellm("pair", board.host, code, "--name", "laptop", **home).returncode == 0
    for _ in range(2):
        replayed = edgellm("pair", board.host, code, "--name", "thief", XDG_CONFIG_HOME=str(tmp_path / "thief"))
        assert replayed.returncode == 77
        assert "was used by another client, or its time is over" in replayed.stderr
        assert not list((tmp_path / "thief").rglob("api-key*"))
        board.power_cut()
        board.start()
    assert board.paired() == ["laptop"]
    assert board.models_with(board_of(home, board).key()) == 200


def test_a_valid_code_outlives_a_power_cut(board: PairingBoard, home: dict[str, str]) -> None:
    code = board.open_code()
    board.power_cut()
    board.start()
    assert edgellm("pair", board.host, code, **home).returncode == 0


def test_a_wrong_code_is_noticed_by_the_client_which_sends_nothing(board: PairingBoard, home: dict[str, str]) -> None:
    board.open_code()
    refused = edgellm("pair", board.host, str(PairingCode.make()), **home)
    assert refused.returncode == 76
    assert "does not know this code" in refused.stderr
    assert "nothing was sent" in refused.stderr
    assert "/pairing/claim" not in board.daemon.log
    mistyped = edgellm("pair", board.host, "7KX2M", **home)
    assert mistyped.returncode == 78
    assert "a pairing code has 20 letters and digits, and this has 5" in mistyped.stderr


def test_without_an_open_code_both_sides_say_so(board: PairingBoard, home: dict[str, str]) -> None:
    refused = edgellm("pair", board.host, str(PairingCode.make()), **home)
    assert refused.returncode == 77
    assert "No pairing code is open on this board; edgellm pair-code opens one" in refused.stderr
    answer = board.daemon.post("/pairing/hello", {"protocol": 1, "nonce": "0" * 64})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "pairing_closed")
    assert "no pairing code is open" in board.verb("pair-code", "--status").stdout


def test_a_server_without_authority_or_keys_says_what_pairing_needs(start_daemon: StartDaemon) -> None:
    plain: Daemon = start_daemon()
    refused = edgellm("pair-code", "--admin-socket", str(plain.admin_socket))
    assert refused.returncode == 78
    assert "clients need no key here — set server.api_keys_file" in refused.stderr
    answer = plain.post("/pairing/hello", {"protocol": 1, "nonce": "0" * 64})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "pairing_closed")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/pairing/hello", {"protocol": 2, "nonce": "0" * 64}, "protocol"),
        ("/pairing/hello", {"protocol": 1, "nonce": "0" * 63}, "nonce"),
        ("/pairing/hello", {"protocol": 1, "nonce": "0" * 64, "code": "x"}, "code"),
        ("/pairing/claim", {"protocol": 1, "nonce": "0" * 64, "name": "../x"}, "name"),
    ],
)
def test_bad_requests_name_the_field(board: PairingBoard, path: str, body: dict[str, Any], param: str) -> None:
    answer = board.daemon.post(path, body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert board.daemon.post(path, {"nonce": "0" * 10_000}).status_code == 413


def test_guesses_are_held_off_by_address(board: PairingBoard) -> None:
    board.open_code()
    claim = {"protocol": 1, "nonce": "0" * 64, "name": "x", "key_sha256": "0" * 64, "proof": "0" * 64}
    statuses = [board.daemon.post("/pairing/claim", claim).status_code for _ in range(ATTEMPTS_OF_ADDRESS_MAX + 1)]
    assert statuses == [403] * ATTEMPTS_OF_ADDRESS_MAX + [429]
    held_off = board.daemon.post("/pairing/claim", claim)
    assert 1 <= int(held_off.headers["retry-after"]) <= 60
    assert board.paired() == []


def test_of_clients_that_race_exactly_one_wins(board: PairingBoard, tmp_path: Path) -> None:
    code = board.open_code()
    command = [sys.executable, "-m", "edgellm", "pair", board.host, code, "--name"]

    def race(number: int) -> int:
        environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / f"racer-{number}")}
        return subprocess.run([*command, f"racer-{number}"], env=environ, capture_output=True, check=False).returncode

    with ThreadPoolExecutor(RACERS) as pool:
        codes = list(pool.map(race, range(RACERS)))
    assert sorted(codes) == [0, *[77] * (RACERS - 1)]
    winner = codes.index(0)
    assert board.paired() == [f"racer-{winner}"]
    assert (
        board.models_with(
            Board.at("127.0.0.1", board.port, {"XDG_CONFIG_HOME": str(tmp_path / f"racer-{winner}")}).key()
        )
        == 200
    )


def test_a_board_that_loses_power_between_key_and_answer_lets_the_client_finish(
    board: PairingBoard, home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = PairingCode.read(board.open_code())
    ask = client_side._ask
    cuts: list[str] = []

    def losing(address: BoardAddress, path: str, body: Mapping[str, object], context: ssl.SSLContext) -> dict[str, Any]:
        answer = ask(address, path, body, context)
        if path == client_side.CLAIM_PATH and not cuts:
            cuts.append(path)
            board.power_cut()
            raise DaemonUnreachableError("the answer was lost")
        return answer

    monkeypatch.setattr(client_side, "_ask", losing)
    kept = board_of(home, board)
    name = pair(BoardAddress("127.0.0.1", board.port), code, "laptop", kept, pause=lambda seconds: void(board.start))
    assert (name, cuts) == ("laptop", [client_side.CLAIM_PATH])
    assert board.paired() == ["laptop"]
    assert board.models_with(kept.key()) == 200


def void(action: Callable[[], object]) -> None:
    action()


def test_a_client_that_gave_up_finishes_with_the_same_command(
    board: PairingBoard, home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = board.open_code()
    ask = client_side._ask

    def losing(address: BoardAddress, path: str, body: Mapping[str, object], context: ssl.SSLContext) -> dict[str, Any]:
        answer = ask(address, path, body, context)
        if path == client_side.CLAIM_PATH:
            raise DaemonUnreachableError("the answer was lost")
        return answer

    monkeypatch.setattr(client_side, "_ask", losing)
    kept = board_of(home, board)
    with pytest.raises(DaemonUnreachableError, match="run the same command again"):
        pair(BoardAddress("127.0.0.1", board.port), PairingCode.read(code), "laptop", kept, pause=lambda seconds: None)
    again = edgellm("pair", board.host, code, "--name", "laptop", **home)
    assert again.returncode == 0, again.stderr
    assert board.paired() == ["laptop"]
    assert board.models_with(kept.key()) == 200


# Somebody in between


@contextmanager
def in_between(board: PairingBoard, folder: Path, swap_authority: bool) -> Iterator[tuple[int, list[bytes]]]:
    """A server with a certificate of its own that passes requests on; yields its port, and all bodies it got to see."""
    own = PrivateCa(folder)
    own.init(["localhost", "127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.server_certificate, own.server_key)
    listener = socket.create_server(("127.0.0.1", 0))
    seen: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(plain, server_side=True) as connection:
                    _pass_on(connection)
            except OSError:
                continue

    def _pass_on(connection: ssl.SSLSocket) -> None:
        received = b""
        while b"\r\n\r\n" not in received or len(received.partition(b"\r\n\r\n")[2]) < _length(received):
            piece = connection.recv(65536)
            if not piece:
                return
            received += piece
        body = received.partition(b"\r\n\r\n")[2]
        seen.append(body)
        path = received.split(b" ")[1].decode()
        answer = board.daemon.post(path, json.loads(body)).json()
        if swap_authority:
            answer["authority"] = own.ca_certificate.read_text()
        data = json.dumps(answer).encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(data) + data)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], seen
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def _length(received: bytes) -> int:
    head = received.lower().partition(b"\r\n\r\n")[0]
    return int(head.partition(b"content-length:")[2].split(b"\r\n")[0])


@pytest.mark.parametrize("swap_authority", [True, False])
def test_somebody_in_between_learns_nothing_and_gets_no_key(
    board: PairingBoard, home: dict[str, str], tmp_path: Path, swap_authority: bool
) -> None:
    code = PairingCode.read(board.open_code())
    with in_between(board, tmp_path / "between", swap_authority) as (port, seen):
        kept = Board.at("127.0.0.1", port, home)
        with pytest.raises(BoardUnverifiedError, match="nothing was sent to it"):
            pair(BoardAddress("127.0.0.1", port), code, "laptop", kept, pause=lambda seconds: None)
    assert [set(json.loads(body)) for body in seen] == [{"protocol", "nonce"}]
    assert not kept.is_paired
    assert board.paired() == []
    assert edgellm("pair", board.host, str(code), **home).returncode == 0  # the code is as good as before


def test_a_board_whose_certificate_has_another_name_says_what_to_do(
    board: PairingBoard, home: dict[str, str], tmp_path: Path
) -> None:
    code = PairingCode.read(board.open_code())
    board.authority.init(["localhost"])
    board.daemon.wait_for(lambda: "certificate and key were read anew" in board.daemon.log)
    with pytest.raises(BoardUnverifiedError, match=r"on the board: edgellm tls init --name 127\.0\.0\.1"):
        pair(BoardAddress("127.0.0.1", board.port), code, "laptop", board_of(home, board))
    board.verb("pair-code", "--close")
    with pytest.raises(PairingClosedError):
        pair(BoardAddress("localhost", board.port), code, "laptop", board_of(home, board))
