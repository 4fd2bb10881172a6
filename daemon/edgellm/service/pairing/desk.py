"""Desk: opens codes, lets exactly one client use each, and keeps the keys of those that did."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from edgellm.api.keys import ApiKey
from edgellm.api.pairing import Greeting
from edgellm.config.regular_file import open_regular
from edgellm.errors import ConfigError, PairingClosedError, PairingRefusedError
from edgellm.service.api_keys import add_hashed_key, read_keys_left, revoke_key
from edgellm.service.pairing.attempts import Attempts
from edgellm.service.pairing.code import PairingCode, Verifier, fingerprint_text
from edgellm.service.pairing.open_code import (
    OpenCode,
    boottime_seconds,
    read_open_code,
    remove_open_code,
    write_open_code,
)
from edgellm.service.tls import CERTIFICATE_BYTES_MAX

KEYS_FILE: Final = "api-keys"
REFUSED_PROOFS_MAX: Final = 20  # then the code is closed
NAMES_TRIED_MAX: Final = 1_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CodeState:
    """``code`` is known only when it has just been opened."""

    id: str
    left_seconds: float
    is_used: bool
    fingerprint: str
    code: PairingCode | None = None


class Desk:
    """``taken_names`` are those of the operator's clients.

    ``on_change`` is called on the event loop when paired clients came or went.
    """

    def __init__(
        self,
        folder: Path,
        authority: Path,
        taken_names: Callable[[], Sequence[str]],
        on_change: Callable[[], object],
        attempts: Attempts | None = None,
    ) -> None:
        """A pairing that was cut off is completed. What cannot be read is logged and lost, and the server serves."""
        self._folder = folder
        self._authority_path = authority
        self._taken_names = taken_names
        self._on_change = on_change
        self._attempts = attempts or Attempts()
        self._changing = asyncio.Lock()
        self._code: OpenCode | None = None
        try:
            self._code = read_open_code(folder)
            if self._code is not None:
                self._complete(self._code)
        except ConfigError as error:
            _log.error("the pairing code of before is lost: %s", error)

    @property
    def keys_file(self) -> Path:
        return paired_keys_file(self._folder)

    # For whoever runs the machine

    async def open(self, lifetime_seconds: float) -> CodeState:
        """A new code, in the place of one that was open. Raises ConfigError."""
        code = PairingCode.make()
        verifier = code.verifier(self._authority_der())
        async with self._changing:
            opened = OpenCode(verifier.key, boottime_seconds() + lifetime_seconds)
            await asyncio.to_thread(write_open_code, self._folder, opened)
            self._code = opened
        _log.info("a pairing code was opened for %.0f minutes", lifetime_seconds / 60)
        return self._state(opened, code)

    async def close(self) -> bool:
        """Whether one was open."""
        async with self._changing:
            was_open = self._open_code() is not None
            await asyncio.to_thread(remove_open_code, self._folder)
            self._code = None
        return was_open

    def state(self) -> CodeState | None:
        code = self._open_code()
        return None if code is None else self._state(code)

    def clients(self) -> Sequence[ApiKey]:
        return read_paired_keys(self._folder)

    async def revoke(self, name: str) -> None:
        """Raises ConfigError for a client that is not paired."""
        if all(client.name != name for client in self.clients()):
            names = ", ".join(client.name for client in self.clients()) or "nobody"
            raise ConfigError(f"no client {name!r} is paired — paired are: {names}")
        async with self._changing:
            code = self._open_code()
            if code is not None and code.client == name:  # its client could repeat itself, and have a key again
                await asyncio.to_thread(remove_open_code, self._folder)
                self._code = None
            await asyncio.to_thread(revoke_key, self.keys_file, name)
        self._on_change()

    # For clients

    def hello(self, address: str, nonce: bytes) -> Greeting:
        self._attempts.count(address)
        code = self._open_code()
        if code is None:
            raise PairingClosedError
        certificate = x509.load_der_x509_certificate(self._authority_der())
        proof = Verifier(code.verifier_key).proof_of_board(nonce)
        return Greeting(certificate.public_bytes(Encoding.PEM).decode("ascii"), proof)

    async def claim(self, address: str, nonce: bytes, name: str, key_sha256: bytes, proof: bytes) -> str:
        self._attempts.count(address)
        async with self._changing:
            client = await asyncio.to_thread(self._claim, address, nonce, name, key_sha256, proof)
        self._on_change()
        return client

    def _claim(self, address: str, nonce: bytes, name: str, key_sha256: bytes, proof: bytes) -> str:
        code = self._open_code()
        if code is None:
            raise PairingClosedError
        expected = Verifier(code.verifier_key).proof_of_client(nonce, key_sha256, name)
        if not hmac.compare_digest(expected, proof):
            self._refuse(code, address)
        if code.key_sha256 is not None:
            # The client that used it may not have had its answer. Another one gets none.
            if not hmac.compare_digest(code.key_sha256, key_sha256):
                raise PairingClosedError
            return self._complete(code)
        used = code.used_by(self._name_for(name, key_sha256), key_sha256)
        # First that it is used, then the key: a power cut in between costs no second client a key.
        write_open_code(self._folder, used)
        self._code = used
        return self._complete(used)

    def _refuse(self, code: OpenCode, address: str) -> None:
        refused = code.refused_once_more()
        if refused.refused_proofs >= REFUSED_PROOFS_MAX:
            remove_open_code(self._folder)
            self._code = None
            _log.warning("the pairing code was closed after %d wrong proofs", refused.refused_proofs)
        else:
            write_open_code(self._folder, refused)
            self._code = refused
        _log.warning("a wrong proof of the pairing code came from %s", address)
        raise PairingRefusedError

    def _complete(self, code: OpenCode) -> str:
        """The key of the client that used the code holds, if it did not before. Its name."""
        if code.client is None or code.key_sha256 is None:
            return ""
        if all(client.name != code.client for client in self.clients()):
            add_hashed_key(self.keys_file, code.client, code.key_sha256)
            _log.info("paired with %s", code.client)
        return code.client

    def _name_for(self, wished: str, key_sha256: bytes) -> str:
        known = next((client.name for client in self.clients() if client.sha256 == key_sha256), None)
        if known is not None:  # paired with an earlier code, and never heard of it
            return known
        taken = {*self._taken_names(), *(client.name for client in self.clients())}
        for number in range(1, NAMES_TRIED_MAX):
            name = wished if number == 1 else f"{wished}-{number}"
            if name not in taken:
                return name
        raise ConfigError(f"{NAMES_TRIED_MAX} clients are called {wished} — revoke some: edgellm paired revoke NAME")

    def _open_code(self) -> OpenCode | None:
        if self._code is not None and self._code.left_seconds <= 0:
            remove_open_code(self._folder)
            self._code = None
        return self._code

    def _state(self, code: OpenCode, shown: PairingCode | None = None) -> CodeState:
        fingerprint = fingerprint_text(self._authority_der())
        return CodeState(Verifier(code.verifier_key).id, code.left_seconds, code.is_used, fingerprint, shown)

    def _authority_der(self) -> bytes:
        path = self._authority_path
        try:
            with open_regular(path) as stream:
                certificate = x509.load_pem_x509_certificate(stream.read(CERTIFICATE_BYTES_MAX))
        except OSError as error:
            raise ConfigError(
                f"server.tls_authority_file {path}: {error.strerror} — or run: edgellm tls init"
            ) from None
        except ValueError:
            raise ConfigError(
                f"server.tls_authority_file {path} is no certificate in PEM — give the ca.crt of edgellm tls init"
            ) from None
        return certificate.public_bytes(Encoding.DER)


def paired_keys_file(folder: Path) -> Path:
    return folder / KEYS_FILE


def read_paired_keys(folder: Path) -> Sequence[ApiKey]:
    """Of the clients that paired. Raises ConfigError."""
    path = paired_keys_file(folder)
    return read_keys_left(path) if path.exists() else ()
