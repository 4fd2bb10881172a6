"""Attempts: how often anybody may try to pair, from one address and from all together."""

from __future__ import annotations

import ipaddress
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from edgellm.errors import RateLimitedError

WINDOW_SECONDS: Final = 60.0
ATTEMPTS_OF_ADDRESS_MAX: Final = 12  # a pairing takes two
ATTEMPTS_MAX: Final = 60
IPV6_NETWORK_BITS: Final = 64  # one subscriber has all addresses of such a network


class Attempts:
    """Over the last minute. What is remembered is bounded by the limit of all."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._recent: deque[tuple[float, str]] = deque()

    def count(self, address: str) -> None:
        """One more from ``address``. Raises RateLimitedError, and then it does not count."""
        now, source = self._clock(), _source_of(address)
        while self._recent and self._recent[0][0] <= now - WINDOW_SECONDS:
            self._recent.popleft()
        own = [moment for moment, whose in self._recent if whose == source]
        if len(own) >= ATTEMPTS_OF_ADDRESS_MAX:
            raise _refusal(own[0], now, "Too many attempts to pair came from this address.")
        if len(self._recent) >= ATTEMPTS_MAX:
            raise _refusal(self._recent[0][0], now, "Too many attempts to pair were made.")
        self._recent.append((now, source))


def _refusal(oldest: float, now: float, text: str) -> RateLimitedError:
    return RateLimitedError(text, retry_after_seconds=oldest + WINDOW_SECONDS - now)


def _source_of(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, IPV6_NETWORK_BITS), strict=False))
    return str(parsed)
