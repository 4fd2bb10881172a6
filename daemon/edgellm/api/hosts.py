"""The Host allow-list: a page that rebinds its name to this machine still sends its own name."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from edgellm.api.error_mapping import HttpError
from edgellm.api.settings import ApiSettings

LOOK_UP_SECONDS = 1.0  # between two look-ups, whatever Host names come


class KnownHosts:
    """The allow-list of ``settings``. Where a request brings a name that is not on it, it is looked up anew: a machine
    may have got another name or address since."""

    def __init__(self, settings: ApiSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.change(settings)

    def change(self, settings: ApiSettings) -> None:
        self._look_up = settings.look_up_hosts
        self._allowed = settings.allowed_hosts
        self._looked_up_at = float("-inf")

    def check(self, values: Sequence[bytes]) -> None:
        """Raises HttpError."""
        try:
            check_host(values, self._allowed)
        except HttpError:
            now = self._clock()
            if self._look_up is None or now - self._looked_up_at < LOOK_UP_SECONDS:
                raise
            self._looked_up_at = now
            self._allowed = tuple(self._look_up())
            check_host(values, self._allowed)


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
