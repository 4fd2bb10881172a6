"""Data URLs: the content of a file as a string, with what it is said to be."""

from __future__ import annotations

import re
from typing import Final

HEADER_CHARACTERS_MAX: Final = 256

_HEADER: Final = re.compile(
    r"data:(?P<type>[a-z]+/[a-z0-9.+-]+)?(?:;[a-z0-9-]+=[^;,\"\\]*)*(?P<base64>;base64)?,", re.IGNORECASE
)


def is_data_url(text: str) -> bool:
    return text[:5].lower() == "data:"


def data_url_header(text: str) -> tuple[int, str] | None:
    """Where the base64 begins, and the media type that is said; None for what is no data URL with base64."""
    match = _HEADER.match(text[:HEADER_CHARACTERS_MAX])
    if match is None or not match["base64"]:
        return None
    return match.end(), (match["type"] or "text/plain").lower()
