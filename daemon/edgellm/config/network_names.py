"""How browsers and clients write what the allow-lists of the server hold: an entry of another form never matches."""

from __future__ import annotations

import ipaddress
import re

ANY = "*"
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[^\s/?#@:\[\]]+)(:[0-9]{1,5})?", re.IGNORECASE)
_HOST = re.compile(r"\.?[^\s/?#@:\[\]*,]+")


def require_origin(origin: str) -> None:
    """Raises ValueError for what is neither ``*`` nor SCHEME://HOST[:PORT]."""
    if origin != ANY and not _ORIGIN.fullmatch(origin):
        raise ValueError(
            f"holds {origin!r}, which is no origin — give SCHEME://HOST or SCHEME://HOST:PORT without a path, such as "
            'https://app.example, or "*" for any'
        )


def require_host(host: str) -> None:
    """Raises ValueError for what is neither ``*``, a name, ``.DOMAIN`` nor an address, all without port."""
    if host == ANY or _HOST.fullmatch(host):
        return
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(
            f"holds {host!r}, which is no host name — give names or addresses without scheme and port, such as "
            'board.example, .example for every name below it, or "*" for any'
        ) from None
