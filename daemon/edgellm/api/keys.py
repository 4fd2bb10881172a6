"""API keys: kept as hashes, compared in constant time, replaceable while the server runs."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgellm.serving.priority import Priority


@dataclass(frozen=True, slots=True)
class ApiKey:
    """``name`` is the client in counters, fairness and cache domains; the key itself is not kept.

    ``priority`` is the class that its requests wait in.
    """

    name: str
    sha256: bytes
    priority: Priority = Priority.NORMAL

    @classmethod
    def of(cls, name: str, key: str, priority: Priority = Priority.NORMAL) -> ApiKey:
        return cls(name, hashlib.sha256(key.encode()).digest(), priority)


HOST_PASS_NAME = "@host"  # noqa: S105  # no secret, and no client's: their names begin with a letter or a digit
HOST_PASS_BYTES = 32


class KeyRing:
    """The keys that hold now. A ring that began with keys stays closed when the last of them is revoked.

    ``on_revoked`` is called with the name of each client whose key no longer holds.
    """

    def __init__(self, keys: Sequence[ApiKey], on_revoked: Callable[[str], None] = lambda name: None) -> None:
        self.required = bool(keys)
        self._keys = tuple(keys)
        self._on_revoked = on_revoked
        self._names_seen = {key.name for key in keys}
        self._passes: list[tuple[bytes, float]] = []

    def issue_pass(self, lifetime_seconds: float) -> str:
        """A key of the machine's own administrator, which no file has and which soon ends."""
        now = time.monotonic()
        key = secrets.token_urlsafe(HOST_PASS_BYTES)
        self._passes = [one for one in self._passes if one[1] > now]
        self._passes.append((hashlib.sha256(key.encode()).digest(), now + lifetime_seconds))
        return key

    def replace(self, keys: Sequence[ApiKey]) -> None:
        """Changes the keys for the requests that come after."""
        holding = {(key.name, key.sha256) for key in keys}
        revoked = [key.name for key in self._keys if (key.name, key.sha256) not in holding]
        self.required = self.required or bool(keys)
        self._keys = tuple(keys)
        self._names_seen |= {key.name for key in keys}
        for name in revoked:
            self._on_revoked(name)

    @property
    def has_had_several_clients(self) -> bool:
        """Then what one of them left in a cache must not be found by another."""
        return len(self._names_seen) > 1

    def find(self, key: bytes) -> ApiKey | None:
        """The key that holds, if this is one. Every key is compared, whichever matches."""
        digest = hashlib.sha256(key).digest()
        found: ApiKey | None = None
        for known in self._keys:
            if hmac.compare_digest(known.sha256, digest):
                found = known
        now = time.monotonic()
        for sha256, ends in self._passes:
            if hmac.compare_digest(sha256, digest) and now < ends:
                found = ApiKey(HOST_PASS_NAME, sha256)
        return found
