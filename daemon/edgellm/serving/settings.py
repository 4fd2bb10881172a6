"""ServingSettings: how much one model takes on at a time and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from edgellm.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """Validated on construction. ``max_queued_requests`` 0 refuses at once what cannot run at once."""

    max_queued_requests: int = 16
    queue_timeout_seconds: float = 600.0
    request_timeout_seconds: float | None = None  # from the grant of a slot to the last token
    priority_grants_ahead_max: int = 8  # of higher classes, in a row, before a waiting lower one
    loading_retry_after_seconds: float = 5.0
    shutdown_retry_after_seconds: float = 10.0
    model_memory_bytes: int | None = None  # of all models together; None: what is available at the start
    swap_after_seconds: float = 30.0
    min_resident_seconds: float = 5.0
    reload_retry_seconds: float = 5.0  # after an on-demand model did not load; doubled each time
    reload_retry_seconds_max: float = 300.0

    def __post_init__(self) -> None:
        if self.max_queued_requests < 0:
            raise ConfigError("max_queued_requests must be 0 or more")
        if self.priority_grants_ahead_max < 1:
            raise ConfigError("priority_grants_ahead_max must be 1 or more")
        if not self.queue_timeout_seconds > 0:
            raise ConfigError("queue_timeout must be more than 0 seconds")
        if self.request_timeout_seconds is not None and not self.request_timeout_seconds > 0:
            raise ConfigError("request_timeout must be more than 0 seconds")
