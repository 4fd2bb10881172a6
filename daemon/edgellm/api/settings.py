"""ApiSettings: what the HTTP interface lets through. Limits of single fields are in ``limits``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from edgellm.api.keys import ApiKey
from edgellm.api.media_settings import MediaSettings


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """``allowed_hosts`` and ``cors_origins`` take "*" for any. Without ``api_keys`` any bearer is accepted.

    ``look_up_hosts`` gives ``allowed_hosts`` as they are by then, None where they never change.
    """

    api_keys: tuple[ApiKey, ...] = ()
    unknown_fields: Literal["refuse", "ignore"] = "refuse"
    allowed_hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "::1")  # names without port
    look_up_hosts: Callable[[], Sequence[str]] | None = None
    cors_origins: tuple[str, ...] = ()
    requests_per_minute: int | None = None  # of one client, on routes that take a body
    concurrent_requests: int | None = None  # the same, running and waiting
    body_bytes_max: int = 8 * 2**20
    bodies_bytes_max: int = 64 * 2**20  # held of all bodies that are still coming
    body_deadline_seconds: float = 60.0
    stored_responses_max: int = 1024  # 0: none are kept
    stored_responses_bytes_max: int = 32 * 2**20
    heartbeat_seconds: float = 15.0  # between comment lines of a stream that has no token yet
    media: MediaSettings = field(default_factory=MediaSettings)
    base_url: str = "http://127.0.0.1:8000/v1"  # for people: shown on the status page


class LiveSettings:
    """The settings that hold now; others can take their place while requests are served. Keys are the KeyRing's."""

    def __init__(self, now: ApiSettings) -> None:
        self.now = now
        self._observers: list[Callable[[ApiSettings], None]] = []

    def when_replaced(self, observer: Callable[[ApiSettings], None]) -> None:
        self._observers.append(observer)

    def replace(self, settings: ApiSettings) -> None:
        self.now = settings
        for observer in self._observers:
            observer(settings)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What a connection may cost."""

    connections_max: int = 1024
    connections_per_address_max: int = 512
    head_bytes_max: int = 32 * 2**10  # request line and headers together
    header_count_max: int = 100
    header_deadline_seconds: float = 10.0
    idle_deadline_seconds: float = 75.0
    write_deadline_seconds: float = 60.0
    shutdown_grace_seconds: float = 5.0  # for connections to close once nothing runs any more
