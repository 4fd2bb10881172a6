"""What a reload is answered with beside what changed: that the right daemon was asked, and what did not load."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from edgellm.errors import ConfigError, EdgeLLMError, LoadUnfinishedError
from edgellm.service.admin_messages import Refused
from edgellm.serving.load_failure import load_error_of
from edgellm.serving.model_table import ModelLoad


def require_same_file(asked: str | None, own: Path | None) -> None:
    """Raises ConfigError when whoever asks means a daemon of another configuration file."""
    if asked is None or (own is not None and os.path.realpath(own) == os.path.realpath(asked)):
        return
    has = f"has the configuration file {own}" if own is not None else "has no configuration file"
    raise ConfigError(
        f"the daemon that answers (pid {os.getpid()}) {has}, not {asked}; nothing was read anew — name the socket of "
        "the daemon that is meant (--admin-socket, or admin_socket in its file)"
    )


async def failed_loads(loads: Sequence[ModelLoad], wait_seconds: float) -> list[Refused]:
    """What did not load within that time, and why. Loads that are not done by then go on."""
    if loads:
        await asyncio.wait([load.work for load in loads], timeout=wait_seconds)
    errors = [error for load in loads if (error := _error_of(load, wait_seconds)) is not None]
    return [Refused(error.code, str(error)) for error in errors]


def _error_of(load: ModelLoad, wait_seconds: float) -> EdgeLLMError | None:
    name, failure = load.model.name, load.model.failure
    if not load.work.done():
        stage = load.model.progress.stage
        return LoadUnfinishedError(f"model {name} is still loading after {wait_seconds:g} s ({stage}), and goes on")
    if load.work.cancelled():
        return LoadUnfinishedError(f"model {name} was given up: the daemon ends, or was configured anew meanwhile")
    return None if failure is None else load_error_of(name, failure)
