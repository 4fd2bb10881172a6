"""Who calls: the client whose key came as a bearer token or as x-api-key."""

from __future__ import annotations

from edgellm.api.error_mapping import Headers
from edgellm.api.keys import KeyRing

_BEARER = b"bearer "


def client_of(headers: Headers, keys: KeyRing) -> str | None:
    """None when no header carries a valid key; "" when the server wants none and so takes everybody."""
    if not keys.required:
        return ""
    for name, value in headers:
        if name == b"x-api-key":
            key = value
        elif name == b"authorization" and value[: len(_BEARER)].lower() == _BEARER:
            key = value[len(_BEARER) :].strip()
        else:
            continue
        client = keys.client_of(key)
        if client is not None:
            return client
    return None
