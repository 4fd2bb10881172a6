"""Health: alive, ready, and how it goes."""

from __future__ import annotations

import math
from typing import Any

from edgellm import __version__
from edgellm.serving.engine_client import EngineClient
from edgellm.serving.model import ModelState, ServedModel


def readiness(engine: EngineClient) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Status, headers and body. Not ready names the stage of every model that is not."""
    waiting = {
        model.name: {"state": model.state.value, **_stage(model)}
        for model in engine.models
        if model.state is not ModelState.READY
    }
    if engine.ready:
        return 200, {}, {"status": "ready"}
    return 503, _retry_after(engine), {"status": _status(engine), "models": waiting}


def _retry_after(engine: EngineClient) -> dict[str, str]:
    """No header where a model that is required will not come by itself: no wait helps."""
    if engine.draining:
        return {"retry-after": str(math.ceil(engine.settings.shutdown_retry_after_seconds))}
    missing = [model for model in engine.models if model.counts_for_readiness and not model.is_alive]
    if any(model.retry_after_seconds is None for model in missing):
        return {}
    return {"retry-after": str(math.ceil(engine.settings.loading_retry_after_seconds))}


def health(engine: EngineClient) -> dict[str, Any]:
    return {
        "status": _status(engine),
        "version": __version__,
        "running_requests": engine.running_requests,
        "models": {model.name: _model_health(model) for model in engine.models},
    }


def _status(engine: EngineClient) -> str:
    if engine.draining:
        return "shutting_down"
    return "ready" if engine.ready else "not_ready"


def _model_health(model: ServedModel) -> dict[str, Any]:
    return {
        "state": model.state.value,
        **_stage(model),
        "slots": model.admission.capacity,
        "running": model.admission.running,
        "waiting": model.admission.waiting,
        "lanes": [
            {
                "scheduling": _plain(counters.scheduling),
                "context_cache": _plain(counters.context_cache),
                "steps_completed": counters.steps_completed,
            }
            for counters in (lane.counters() for lane in model.lanes)
        ],
    }


def _plain(values: Any) -> dict[str, Any] | None:
    return None if values is None else dict(values)


def _stage(model: ServedModel) -> dict[str, Any]:
    if model.state is not ModelState.LOADING:
        return {}
    return {"stage": model.progress.stage, "progress": model.progress.fraction}
