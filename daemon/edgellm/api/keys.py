"""API keys: kept as hashes, compared in constant time, replaceable while the server runs."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ApiKey:
    """``name`` is the client in counters, fairness and cache domains; the key itself is not kept."""

    name: str
    sha256: bytes

    @classmethod
    def of(cls, name: str, key: str) -> ApiKey:
        return cls(name, hashlib.sha256(key.encode()).digest())


class KeyRing:
    """The keys that hold now. ``replace`` changes them for the requests that come after."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._keys = tuple(keys)

    def replace(self, keys: Sequence[ApiKey]) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def client_of(self, key: bytes) -> str | None:
        """The name of the client whose key this is. Every key is compared, whichever matches."""
        digest = hashlib.sha256(key).digest()
        found: str | None = None
        for known in self._keys:
            if hmac.compare_digest(known.sha256, digest):
                found = known.name
        return found
