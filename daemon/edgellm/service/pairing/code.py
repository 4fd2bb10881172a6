"""PairingCode: 90 random bits for people to read and type, and the proofs that board and client make of it.

Letters and digits of Crockford's alphabet, which has no I, L, O and U; the last two are a checksum.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final

from edgellm.errors import ConfigError

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
BITS_A_CHARACTER: Final = 5
SECRET_CHARACTERS: Final = 18
CHECKSUM_CHARACTERS: Final = 2
GROUP_CHARACTERS: Final = 5
NONCE_BYTES: Final = 32
_READ_AS: Final = {"I": "1", "L": "1", "O": "0"}


@dataclass(frozen=True, slots=True)
class PairingCode:
    """``secret`` has the characters without the checksum."""

    secret: str

    @classmethod
    def make(cls) -> PairingCode:
        return cls("".join(secrets.choice(ALPHABET) for _ in range(SECRET_CHARACTERS)))

    @classmethod
    def read(cls, text: str) -> PairingCode:
        """As people type it. Raises ConfigError that never quotes what may be most of a code."""
        letters = "".join(_READ_AS.get(char, char) for char in text.upper() if char not in "- ")
        wanted = SECRET_CHARACTERS + CHECKSUM_CHARACTERS
        if len(letters) != wanted:
            raise ConfigError(f"a pairing code has {wanted} letters and digits, and this has {len(letters)}")
        if any(char not in ALPHABET for char in letters):
            raise ConfigError("a pairing code has letters and digits alone — see what the board shows")
        code = cls(letters[:SECRET_CHARACTERS])
        if not hmac.compare_digest(letters[SECRET_CHARACTERS:], code.checksum):
            raise ConfigError("the pairing code is mistyped: its last two characters do not fit the others")
        return code

    @property
    def checksum(self) -> str:
        number = int.from_bytes(hashlib.sha256(self.secret.encode()).digest()[:4], "big")
        return "".join(ALPHABET[number >> (BITS_A_CHARACTER * place) & 31] for place in range(CHECKSUM_CHARACTERS))

    def __str__(self) -> str:
        """In groups: ``7KX2M-…``."""
        letters = self.secret + self.checksum
        groups = [letters[start : start + GROUP_CHARACTERS] for start in range(0, len(letters), GROUP_CHARACTERS)]
        return "-".join(groups)

    def __repr__(self) -> str:
        return "PairingCode(…)"  # a code must not get into a traceback

    def verifier(self, authority_der: bytes) -> Verifier:
        authority_sha256 = hashlib.sha256(authority_der).digest()
        key = hmac.digest(self.secret.encode(), b"edgellm pairing 1\0" + authority_sha256, "sha256")
        return Verifier(key)


@dataclass(frozen=True, slots=True)
class Verifier:
    """What a board keeps of a code: good for the proofs of this code with one authority, and for nothing else."""

    key: bytes

    def __repr__(self) -> str:
        return "Verifier(…)"

    @property
    def id(self) -> str:
        """Tells one code from another, and nothing about either."""
        return hashlib.sha256(b"edgellm pairing id\0" + self.key).hexdigest()[:16]

    def proof_of_board(self, nonce: bytes) -> bytes:
        return hmac.digest(self.key, b"board\0" + nonce, "sha256")

    def proof_of_client(self, nonce: bytes, key_sha256: bytes, name: str) -> bytes:
        return hmac.digest(self.key, b"client\0" + nonce + key_sha256 + name.encode(), "sha256")


def fingerprint_text(authority_der: bytes) -> str:
    """For people: SHA-256 of the certificate, in groups of four digits."""
    digits = hashlib.sha256(authority_der).hexdigest().upper()
    return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))
