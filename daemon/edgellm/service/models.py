"""Turns configured models into what serving opens: each is loaded in a thread, with its stages reported."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgellm.config import ModelSettings, Settings
from edgellm.config.limits import MODEL_NAME_PATTERN
from edgellm.engines.cache_directory import models_dir
from edgellm.engines.catalogue import CATALOGUE, locate
from edgellm.engines.hub.hub_id import parse_hub_id
from edgellm.engines.progress import Progress
from edgellm.engines.source import resolve
from edgellm.errors import ConfigError, ModelSourceError
from edgellm.runtime.llm import LLM
from edgellm.service.engine_store import engine_store
from edgellm.serving.model import LoadProgress, ModelSpec, OpenedModel, ReportProgress
from edgellm.serving.opened_llm import opened_llm

_log = logging.getLogger(__name__)


def model_specs(settings: Settings) -> Sequence[ModelSpec]:
    """One spec a served model. Raises for a source that is not there."""
    specs = [_spec(model, settings) for model in settings.served_models]
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f'two models are called "{name}" — give each its own name')
    if settings.engines.clear_on_start:
        for entry in engine_store(settings).clear().removed:
            _log.info("removed the engine %s", entry.name)
    return specs


def _spec(model: ModelSettings, settings: Settings) -> ModelSpec:
    folder = models_dir(settings.cache_dir)
    if model.source in CATALOGUE and locate(model.source, folder) is None:
        raise ModelSourceError(
            f"the model {model.source} is not on this machine yet — run: edgellm models add {model.source}"
        )
    name = model.name or _model_id(model.source, folder)
    if not re.fullmatch(MODEL_NAME_PATTERN, name):
        raise ConfigError(f"{name!r} cannot be a model's name — choose one: --model NAME={model.source}")

    async def open_model(report: ReportProgress) -> OpenedModel:
        llm = await asyncio.to_thread(_load, model, settings, report)
        return opened_llm(llm)

    recommended = CATALOGUE[model.source].sampling if model.source in CATALOGUE else {}
    chosen = model.sampling.model_dump(exclude_none=True)
    return ModelSpec(
        name=name,
        open=open_model,
        sampling={**recommended, **chosen},
        reasoning_parser=model.reasoning_parser,
        tool_call_parser=model.tool_call_parser,
        enable_auto_tool_choice=model.enable_auto_tool_choice,
    )


def _model_id(source: str, folder: Path) -> str:
    """Resolved now, so that a wrong path ends the start before anything is loaded.

    A hub's model that is not here yet is fetched while it loads: readiness says how far it is.
    """
    hub_id = parse_hub_id(source)
    if hub_id is not None and not Path(source).exists():
        return hub_id.model_id
    return resolve(source, folder, download=False).model_id


def _load(model: ModelSettings, settings: Settings, report: ReportProgress) -> LLM:
    def show(progress: Progress) -> None:
        report(LoadProgress(progress.message, progress.fraction))

    return LLM(
        model.source,
        cache_dir=str(settings.cache_dir),
        engine_cache_max_size_gb=settings.engines.cache_max_size_gb,
        build_on_start=settings.engines.build_on_start,
        read_only_engine_dirs=settings.engines.read_only_dirs,
        on_progress=show,
        **llm_arguments(model),
    )


def llm_arguments(model: ModelSettings) -> dict[str, Any]:
    """What was set, under the names of LLM's arguments; the rest is left to its defaults."""
    arguments: Mapping[str, Any] = {
        "runtime": model.runtime,
        "executor": model.executor,
        "threads": model.threads,
        "quantisation": model.quantisation,
        "max_input_len": model.max_input_len,
        "max_batch_size": model.max_batch_size,
        "max_kv_cache_capacity": model.max_kv_cache_capacity,
        "enable_in_flight_batching": model.enable_in_flight_batching,
        "enable_context_reuse": model.enable_context_reuse,
        "context_cache_max_records": model.context_reuse_max_records,
    }
    return {name: value for name, value in arguments.items() if value is not None}
