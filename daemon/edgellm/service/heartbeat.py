"""Heartbeat: the watchdog's pings from the event loop, and a STATUS that follows the models.

A worker that hangs is replaced by its lane, and the pings go on meanwhile. They stop when the loop is stuck, or when
every required model is unavailable for good: nothing but a restart of the service helps then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from edgellm.errors import DaemonUnreachableError, LoadUnfinishedError, WorkerFailedError
from edgellm.service.notify import Supervisor
from edgellm.serving.engine_client import EngineClient
from edgellm.serving.model import ModelState, ServedModel

STATUS_INTERVAL_SECONDS = 1.0

_log = logging.getLogger(__name__)


class Heartbeat:
    """``watches_models`` is set once they have been ready: until then a failure ends the start by itself."""

    def __init__(self, client: EngineClient, supervisor: Supervisor, url: str) -> None:
        self._client = client
        self._supervisor = supervisor
        self._url = url
        self._has_given_up = False
        self.watches_models = False

    async def beat(self) -> None:
        """Until it is cancelled."""
        interval_seconds = min(
            STATUS_INTERVAL_SECONDS, self._supervisor.ping_interval_seconds or STATUS_INTERVAL_SECONDS
        )
        while True:
            if self.watches_models:
                self._supervisor.status(serving_text(self._client.models, self._url))
            if self._supervisor.ping_interval_seconds is not None and self._is_worth_living():
                self._supervisor.alive()
            await asyncio.sleep(interval_seconds)

    def _is_worth_living(self) -> bool:
        if not self.watches_models or not are_gone_for_good(self._client.models):
            self._has_given_up = False
            return True
        if not self._has_given_up:
            self._has_given_up = True
            _log.error("every required model is unavailable: the watchdog gets no more pings, so that systemd restarts")
        return False


def are_gone_for_good(models: Sequence[ServedModel]) -> bool:
    """Every required model has used up its restarts, and there is one."""
    required = [model for model in models if model.counts_for_readiness]
    return bool(required) and all(model.state is ModelState.UNAVAILABLE for model in required)


def require_ready(client: EngineClient) -> None:
    """Raises an EdgeLLMError with what stands in the way."""
    if client.draining:
        raise DaemonUnreachableError("the daemon is ending")
    if client.ready:
        return
    loading = [model.name for model in client.models if model.state is ModelState.LOADING]
    if loading:
        raise LoadUnfinishedError(f"still loading: {', '.join(loading)}")
    unwell = [f"{model.name} is {model.state.value}" for model in client.models if not model.is_alive]
    raise WorkerFailedError("; ".join(unwell) or "not ready yet")


def serving_text(models: Sequence[ServedModel], url: str) -> str:
    """Names what is not as it should be."""
    unwell = [f"{model.name} is {model.state.value}" for model in models if model.state not in _WELL]
    return f"serving on {url}{''.join(f'; {text}' for text in unwell)}"


_WELL = (ModelState.READY, ModelState.UNLOADED)
