"""Clients behind gateways: what X-Forwarded-For and Forwarded say is believed from listed gateways alone.

Each gateway adds whom it saw at the end, so the end is read first: the address that the last unlisted hop has is the
client. Everything before it may have been made up by that client.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from edgellm.api.error_mapping import Headers

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_FORWARDED_FOR = re.compile(r"for=(\"[^\"]*\"|[^;\s]*)", re.IGNORECASE)
_WITH_PORT = re.compile(r"(?:\[([^\]]*)\]|([^:]*))(?::\d+)?")


class ForwardedClients:
    """Wraps an application, which then sees the address of the client in place of its gateway's."""

    def __init__(self, app: ASGIApp, gateways: Sequence[Network]) -> None:
        self._app = app
        self._gateways = tuple(gateways)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = scope.get("client")
        if peer and self._gateways and scope["type"] == "http":
            scope = {**scope, "client": (self._client_address(peer[0], scope["headers"]), peer[1])}
        await self._app(scope, receive, send)

    def _client_address(self, peer: str, headers: Headers) -> str:
        address = _address(peer)
        if address is None or not self._is_gateway(address):
            return peer
        found = [
            self._nearest_client(address, hops)
            for hops in (_hops(headers, b"x-forwarded-for"), _forwarded_hops(headers))
            if hops
        ]
        # A gateway sets one of the two. What the other says is its client's, and which is which cannot be told.
        return str(found[0]) if found and len(set(found)) == 1 else peer

    def _nearest_client(self, peer: Address, hops: Iterable[str]) -> Address:
        client = peer
        for hop in reversed(list(hops)):
            address = _address(hop)
            if address is None:
                break
            client = address
            if not self._is_gateway(address):
                break
        return client

    def _is_gateway(self, address: Address) -> bool:
        return any(address in network for network in self._gateways)


def _hops(headers: Headers, name: bytes) -> list[str]:
    """The entries of all headers of that name, in order."""
    return [entry.strip() for key, value in headers if key == name for entry in value.decode("latin-1").split(",")]


def _forwarded_hops(headers: Headers) -> list[str]:
    hops = []
    for entry in _hops(headers, b"forwarded"):
        match = _FORWARDED_FOR.search(entry)
        hops.append(match[1].strip('"') if match else "")
    return hops


def _address(text: str) -> Address | None:
    """An address, with or without a port; one of IPv4 within IPv6 is the one of IPv4."""
    for candidate in (text, *((match[1] or match[2]) for match in [_WITH_PORT.fullmatch(text)] if match)):
        try:
            address = ipaddress.ip_address(candidate)
        except ValueError:
            continue
        return getattr(address, "ipv4_mapped", None) or address
    return None
