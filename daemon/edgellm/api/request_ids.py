"""Request ids: a client's own where it is valid, else one that is made."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence

from edgellm.api import limits
from edgellm.api.error_mapping import HttpError

_VALID = re.compile(rb"[A-Za-z0-9._:-]{1,%d}" % limits.REQUEST_ID_CHARACTERS_MAX)


def made_request_id() -> str:
    return uuid.uuid4().hex


def request_id_of(values: Sequence[bytes]) -> str:
    """``values`` are those of all X-Request-ID headers. Raises HttpError when they are repeated or not valid."""
    if not values:
        return made_request_id()
    if len(values) > 1:
        raise HttpError(400, "The X-Request-ID header must be sent once.", "invalid_value")
    if _VALID.fullmatch(values[0]) is None:
        raise HttpError(
            400,
            f"X-Request-ID must be 1 to {limits.REQUEST_ID_CHARACTERS_MAX} characters of A-Z a-z 0-9 . _ : -",
            "invalid_value",
        )
    return values[0].decode("ascii")
