"""RequestReport: what became of one request, for counters and records. Holds no text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from edgellm.errors import (
    AdmissionError,
    EdgeLLMError,
    KeyRevokedError,
    RequestCancelledError,
    RequestError,
    RequestTimeoutError,
    ServerBusyError,
)


class Outcome(Enum):
    SUCCESS = "success"
    REFUSED = "refused"  # the request was wrong
    SATURATED = "saturated"  # queue full or queue timeout
    UNAVAILABLE = "unavailable"  # loading, gone, or shutting down
    DISCONNECTED = "disconnected"
    TIMED_OUT = "timed_out"
    ERROR = "error"


@dataclass(slots=True)
class RequestReport:
    """Filled as the request goes; times are of one monotonic clock, None for a stage that was not reached."""

    request_id: str
    model: str
    choices: int
    arrived_seconds: float
    entered_queue_seconds: float | None = None
    granted_seconds: float | None = None
    accepted_seconds: float | None = None
    first_token_seconds: float | None = None
    ended_seconds: float | None = None
    outcome: Outcome | None = None
    error_code: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0


def outcome_of_error(error: EdgeLLMError) -> Outcome:
    match error:
        case RequestError() | KeyRevokedError():
            return Outcome.REFUSED
        case ServerBusyError():
            return Outcome.SATURATED
        case AdmissionError():
            return Outcome.UNAVAILABLE
        case RequestTimeoutError():
            return Outcome.TIMED_OUT
        case RequestCancelledError():
            return Outcome.DISCONNECTED
        case _:
            return Outcome.ERROR
