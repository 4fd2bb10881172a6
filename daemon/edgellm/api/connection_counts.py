"""ConnectionCounts: how many connections there are, in all and from one address."""

from __future__ import annotations

from collections import Counter


class ConnectionCounts:
    """Shared by the connections of a server. An address is the peer's own: whoever is behind a proxy counts as one."""

    def __init__(self, connections_max: int, per_address_max: int) -> None:
        self._connections_max = connections_max
        self._per_address_max = per_address_max
        self._count = 0
        self._of_address: Counter[str] = Counter()

    def opened(self, address: str) -> bool:
        """Count a connection; False when it is one too many. Either way ``closed`` is called for it."""
        self._count += 1
        self._of_address[address] += 1
        return self._count <= self._connections_max and self._of_address[address] <= self._per_address_max

    def closed(self, address: str) -> None:
        self._count -= 1
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]
