"""The Host allow-list: a page that rebinds its name to this machine still sends its own name."""

from __future__ import annotations

from collections.abc import Sequence

from edgellm.api.error_mapping import HttpError


def check_host(values: Sequence[bytes], allowed: Sequence[str]) -> None:
    """``allowed`` holds names and addresses without port; ".local" stands for every name below it, "*" for any."""
    if "*" in allowed:
        return
    if len(values) != 1:
        raise HttpError(400, "The request must have one Host header.", "invalid_value")
    name = _name_of(values[0].decode("latin-1"))
    for entry in allowed:
        if name == entry.lower() or (entry.startswith(".") and name.endswith(entry.lower())):
            return
    raise HttpError(403, "The server is not known by this Host name; the operator can allow it.", "not_allowed")


def _name_of(host: str) -> str:
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")
