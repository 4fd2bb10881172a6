"""The board's desk: one client a code, whatever goes wrong in between, and few attempts for those that guess."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgellm.errors import ConfigError, PairingClosedError, PairingRefusedError, RateLimitedError
from edgellm.service.pairing import desk as desk_module
from edgellm.service.pairing.attempts import ATTEMPTS_MAX, ATTEMPTS_OF_ADDRESS_MAX, WINDOW_SECONDS, Attempts
from edgellm.service.pairing.code import PairingCode, Verifier
from edgellm.service.pairing.desk import REFUSED_PROOFS_MAX, Desk
from edgellm.service.private_ca import PrivateCa

NONCE = b"n" * 32
LIFETIME_SECONDS = 600.0


class Patient(Attempts):
    """For tests that are not about attempts."""

    def count(self, address: str) -> None:
        return


class Board:
    def __init__(self, folder: Path, taken: Sequence[str] = ()) -> None:
        self.authority = PrivateCa(folder / "tls")
        self.authority.init(["localhost"])
        self.folder = folder / "pairing"
        self.taken = taken
        self.changes = 0
        self.desk = self.restarted()

    def restarted(self, attempts: Attempts | None = None) -> Desk:
        self.desk = Desk(
            self.folder, self.authority.ca_certificate, lambda: self.taken, self._changed, attempts or Patient()
        )
        return self.desk

    def _changed(self) -> None:
        self.changes += 1

    @property
    def authority_der(self) -> bytes:
        return ssl.PEM_cert_to_DER_cert(self.authority.ca_certificate.read_text())

    def opened(self) -> Verifier:
        code = asyncio.run(self.desk.open(LIFETIME_SECONDS)).code
        assert code is not None
        return code.verifier(self.authority_der)

    def claim(self, verifier: Verifier, key: str, name: str = "laptop") -> str:
        return asyncio.run(claim(self.desk, verifier, key, name))

    def names(self) -> list[str]:
        return [client.name for client in self.desk.clients()]


async def claim(desk: Desk, verifier: Verifier, key: str, name: str = "laptop", address: str = "10.0.0.2") -> str:
    key_sha256 = hashlib.sha256(key.encode()).digest()
    return await desk.claim(address, NONCE, name, key_sha256, verifier.proof_of_client(NONCE, key_sha256, name))


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


def test_the_board_proves_the_code_for_its_own_authority(board: Board) -> None:
    verifier = board.opened()
    greeting = board.desk.hello("10.0.0.2", NONCE)
    assert ssl.PEM_cert_to_DER_cert(greeting.authority) == board.authority_der
    assert greeting.proof == verifier.proof_of_board(NONCE)


def test_without_an_open_code_everything_is_refused_by_name(board: Board) -> None:
    stranger = PairingCode.make().verifier(board.authority_der)
    with pytest.raises(PairingClosedError):
        board.desk.hello("10.0.0.2", NONCE)
    with pytest.raises(PairingClosedError):
        board.claim(stranger, "key")
    board.opened()
    assert asyncio.run(board.desk.close())
    assert not asyncio.run(board.desk.close())
    with pytest.raises(PairingClosedError):
        board.desk.hello("10.0.0.2", NONCE)


def test_the_first_client_gets_a_key_and_no_second_one(board: Board) -> None:
    verifier = board.opened()
    assert board.claim(verifier, "key-of-the-first") == "laptop"
    assert board.changes == 1
    with pytest.raises(PairingClosedError):
        board.claim(verifier, "key-of-the-second", "phone")
    assert board.claim(verifier, "key-of-the-first") == "laptop"  # whose answer was lost
    assert board.names() == ["laptop"]
    assert board.desk.clients()[0].sha256 == hashlib.sha256(b"key-of-the-first").digest()


def test_of_clients_that_race_exactly_one_wins(board: Board) -> None:
    verifier = board.opened()

    async def race() -> list[object]:
        claims = [claim(board.desk, verifier, f"key-{number}", f"client-{number}") for number in range(20)]
        return list(await asyncio.gather(*claims, return_exceptions=True))

    results = asyncio.run(race())
    winners = [result for result in results if isinstance(result, str)]
    assert board.names() == winners
    assert len(winners) == 1
    assert sum(isinstance(result, PairingClosedError) for result in results) == 19


def test_a_wrong_code_gets_nothing_and_the_right_one_still_does(board: Board) -> None:
    verifier = board.opened()
    wrong = PairingCode.make().verifier(board.authority_der)
    with pytest.raises(PairingRefusedError):
        board.claim(wrong, "key")
    other_authority = PrivateCa(board.folder.parent / "other")
    other_authority.init(["localhost"])
    with pytest.raises(PairingRefusedError):
        board.claim(PairingCode.make().verifier(b"other authority"), "key")
    assert board.names() == []
    assert board.claim(verifier, "key") == "laptop"


def test_guessing_closes_the_code_also_across_restarts(board: Board) -> None:
    verifier = board.opened()
    wrong = PairingCode.make().verifier(board.authority_der)
    for _ in range(REFUSED_PROOFS_MAX):
        board.restarted()
        with pytest.raises(PairingRefusedError):
            board.claim(wrong, "key")
    for _ in range(2):
        with pytest.raises(PairingClosedError):
            board.claim(verifier, "key")
        board.restarted()
    assert board.names() == []


def test_a_restart_neither_revives_a_used_code_nor_loses_a_valid_one(board: Board) -> None:
    verifier = board.opened()
    board.restarted()
    assert board.claim(verifier, "key") == "laptop"
    board.restarted()
    with pytest.raises(PairingClosedError):
        board.claim(verifier, "another", "phone")
    assert board.names() == ["laptop"]


def test_a_power_cut_between_code_and_key_costs_nobody_anything(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    verifier = board.opened()

    def cut(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(desk_module, "add_hashed_key", cut)
        with pytest.raises(KeyboardInterrupt):
            board.claim(verifier, "key")
    assert board.names() == []
    board.restarted()
    assert board.names() == ["laptop"]  # the pairing that was cut off is completed
    assert board.claim(verifier, "key") == "laptop"
    with pytest.raises(PairingClosedError):
        board.claim(verifier, "another", "phone")
    assert board.names() == ["laptop"]


def test_a_power_cut_before_anything_was_written_leaves_the_code_open(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = board.opened()

    def cut(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(desk_module, "write_open_code", cut)
        with pytest.raises(KeyboardInterrupt):
            board.claim(verifier, "key")
    board.restarted()
    assert board.claim(verifier, "another", "phone") == "phone"


def test_a_code_ends_with_its_time(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    verifier = board.opened()
    later = desk_module.boottime_seconds() + LIFETIME_SECONDS + 1
    monkeypatch.setattr("edgellm.service.pairing.open_code.boottime_seconds", lambda: later)
    assert board.desk.state() is None
    with pytest.raises(PairingClosedError):
        board.claim(verifier, "key")
    board.restarted()
    with pytest.raises(PairingClosedError):
        board.claim(verifier, "key")


def test_a_new_code_takes_the_place_of_the_old(board: Board) -> None:
    old, new = board.opened(), board.opened()
    with pytest.raises(PairingRefusedError):
        board.claim(old, "key")
    assert board.claim(new, "key") == "laptop"


def test_names_that_are_taken_get_a_number(tmp_path: Path) -> None:
    board = Board(tmp_path, taken=["laptop"])
    assert board.claim(board.opened(), "one") == "laptop-2"
    assert board.claim(board.opened(), "two") == "laptop-3"
    assert board.claim(board.opened(), "one") == "laptop-2"  # the same client, which did not know


def test_a_revoked_client_cannot_come_back_by_its_old_code(board: Board) -> None:
    verifier = board.opened()
    board.claim(verifier, "key")
    asyncio.run(board.desk.revoke("laptop"))
    assert board.changes == 2
    for _ in range(2):
        with pytest.raises(PairingClosedError):
            board.claim(verifier, "key")
        board.restarted()
    assert board.names() == []
    with pytest.raises(ConfigError, match="no client 'laptop' is paired"):
        asyncio.run(board.desk.revoke("laptop"))


def test_damaged_files_close_pairing_and_stop_no_server(board: Board) -> None:
    verifier = board.opened()
    (board.folder / "open-code.json").write_text("nonsense")
    board.restarted()
    with pytest.raises(PairingClosedError):
        board.claim(verifier, "key")
    assert board.claim(board.opened(), "key") == "laptop"


def test_what_is_kept_is_not_the_code(board: Board) -> None:
    code = asyncio.run(board.desk.open(LIFETIME_SECONDS)).code
    assert code is not None
    board.claim(code.verifier(board.authority_der), "edgellm-the-key")
    kept = b"".join(path.read_bytes() for path in board.folder.iterdir())
    assert code.secret.encode() not in kept
    assert str(code).encode() not in kept
    assert b"edgellm-the-key" not in kept


def test_attempts_are_bounded_by_address_and_in_all(board: Board) -> None:
    now = [0.0]
    desk = board.restarted(Attempts(lambda: now[0]))
    verifier = board.opened()
    for _ in range(ATTEMPTS_OF_ADDRESS_MAX):
        desk.hello("10.0.0.9", NONCE)
    with pytest.raises(RateLimitedError) as refused:
        desk.hello("10.0.0.9", NONCE)
    assert 0 < refused.value.retry_after_seconds <= WINDOW_SECONDS
    with pytest.raises(RateLimitedError):
        asyncio.run(claim(desk, verifier, "key", address="10.0.0.9"))
    assert asyncio.run(claim(desk, verifier, "key", address="10.0.0.2")) == "laptop"
    for number in range(ATTEMPTS_MAX - ATTEMPTS_OF_ADDRESS_MAX - 1):
        desk.hello(f"10.1.0.{number}", NONCE)
    with pytest.raises(RateLimitedError, match="Too many attempts to pair were made"):
        desk.hello("10.2.0.1", NONCE)
    now[0] = WINDOW_SECONDS
    desk.hello("10.2.0.1", NONCE)


def test_an_ipv6_subscriber_is_one_address() -> None:
    attempts = Attempts(lambda: 0.0)
    for number in range(ATTEMPTS_OF_ADDRESS_MAX):
        attempts.count(f"2001:db8:1:2::{number}")
    with pytest.raises(RateLimitedError):
        attempts.count("2001:db8:1:2:ffff::1")
    attempts.count("2001:db8:1:3::1")
    attempts.count("fe80::1%eth0")
