"""WorkerSettings: how a worker is started, and how long it may stay silent before it is given up."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from edgellm.config.model_kind import ModelKind
from edgellm.errors import ConfigError

WORKER_MODULE = "edgellm.service.worker_main"


def worker_command() -> tuple[str, ...]:
    """This installation's interpreter on the worker's module; the number of its socket is appended."""
    return (sys.executable, "-P", "-m", WORKER_MODULE)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Durations are seconds. ``step_deadline`` bounds the time without a completed step while requests run.

    ``restarts_max`` replacements are tried within ``restart_window``; after that the replica stays down.
    """

    start_deadline_seconds: float = 120.0  # from the fork to the first answer; loading comes after it
    ping_interval_seconds: float = 1.0
    ping_deadline_seconds: float = 10.0
    step_deadline_seconds: float = 120.0
    cancel_grace_seconds: float = 10.0
    shutdown_grace_seconds: float = 10.0
    terminate_grace_seconds: float = 2.0
    restart_delay_seconds: float = 0.5
    restart_delay_max_seconds: float = 30.0
    available_memory_bytes_min: int = 256 * 2**20  # of the machine; below it the worker that grew most is ended
    memory_bytes_max: int | None = None  # of one worker, without the files it has mapped
    restarts_max: int = 5
    restart_window_seconds: float = 600.0

    def __post_init__(self) -> None:
        if self.ping_deadline_seconds <= self.ping_interval_seconds:
            raise ConfigError("ping_deadline_seconds must be longer than ping_interval_seconds")


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One replica: ``arguments`` are LLM's, Transcriber's for the kind ``asr`` or TTS's for ``tts``; ``cpus`` the ones
    it may use (empty: all).
    """

    name: str
    arguments: dict[str, Any]
    replica: int = 0
    cpus: tuple[int, ...] = ()
    log_level: str = "info"
    log_format: str = "text"
    log_to_journal: bool = False
    kind: ModelKind = "auto"
    command: tuple[str, ...] = field(default_factory=worker_command)
