"""RequestReport: what became of one request, for counters and records. Holds text only where records are to have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from edgellm.errors import (
    AdmissionError,
    KeyRevokedError,
    RateLimitedError,
    RequestCancelledError,
    RequestError,
    RequestTimeoutError,
    ServerBusyError,
)
from edgellm.runtime.generation import GenerationRequest
from edgellm.serving.priority import Priority


class Outcome(Enum):
    SUCCESS = "success"
    REFUSED = "refused"  # the request was wrong
    SATURATED = "saturated"  # queue full, queue timeout, or a client's own limit
    UNAVAILABLE = "unavailable"  # loading, gone, or shutting down
    DISCONNECTED = "disconnected"
    TIMED_OUT = "timed_out"
    ERROR = "error"


@dataclass(slots=True)
class RequestTexts:
    """What was asked, and the pieces of each choice's answer as the model wrote it."""

    prompts: Sequence[GenerationRequest]
    answers: dict[int, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class RequestReport:
    """Filled as the request goes; times are of one monotonic clock, None for a stage that was not reached.

    ``submitted`` and ``released`` are the first time a lane got a choice of it and the last time one let go.
    """

    request_id: str
    model: str
    choices: int
    arrived_seconds: float
    client: str = ""
    route: str = ""
    priority: Priority = Priority.NORMAL
    metadata: Mapping[str, str] = field(default_factory=dict)
    entered_queue_seconds: float | None = None
    granted_seconds: float | None = None
    submitted_seconds: float | None = None
    accepted_seconds: float | None = None
    first_token_seconds: float | None = None
    last_token_seconds: float | None = None
    released_seconds: float | None = None
    ended_seconds: float | None = None
    lanes: list[str] = field(default_factory=list)
    finish_reasons: Counter[str] = field(default_factory=Counter)
    media: Counter[str] = field(default_factory=Counter)  # what came beside the text, by kind
    texts: RequestTexts | None = None
    outcome: Outcome | None = None
    error_code: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0


def outcome_of_error(error: BaseException) -> Outcome:
    match error:
        case RequestError() | KeyRevokedError():
            return Outcome.REFUSED
        case ServerBusyError() | RateLimitedError():
            return Outcome.SATURATED
        case AdmissionError():
            return Outcome.UNAVAILABLE
        case RequestTimeoutError():
            return Outcome.TIMED_OUT
        case RequestCancelledError():
            return Outcome.DISCONNECTED
        case _:
            return Outcome.ERROR
