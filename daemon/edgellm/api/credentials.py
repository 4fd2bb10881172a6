"""Who calls: the key that came as a bearer token or as x-api-key."""

from __future__ import annotations

from edgellm.api.error_mapping import Headers
from edgellm.api.keys import ApiKey, KeyRing

_BEARER = b"bearer "


def key_in(headers: Headers, keys: KeyRing) -> ApiKey | None:
    """None when no header carries a valid key, or a header that is sent once comes with several values."""
    for once in (b"authorization", b"x-api-key"):
        if len({value for name, value in headers if name == once}) > 1:
            return None
    for name, value in headers:
        if name == b"x-api-key":
            key = value
        elif name == b"authorization" and value[: len(_BEARER)].lower() == _BEARER:
            key = value[len(_BEARER) :].strip()
        else:
            continue
        known = keys.find(key)
        if known is not None:
            return known
    return None
