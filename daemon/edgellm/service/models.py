"""Turns configured models into what serving opens: each in worker processes of its own, one a replica."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from edgellm.config import ModelSettings, Settings
from edgellm.config.limits import MODEL_NAME_CHARACTERS_MAX, MODEL_NAME_PATTERN
from edgellm.config.model_kind import WITHOUT_TEXT, ModelKind
from edgellm.engines.cache_directory import models_dir, require_folder
from edgellm.engines.catalogue import CATALOGUE
from edgellm.engines.hub.hub_id import parse_hub_id
from edgellm.engines.native_builder import has_engine_of_gguf
from edgellm.engines.piper_voice import resolve_piper_voice
from edgellm.engines.source import is_fetchable, resolve
from edgellm.engines.store import BYTES_PER_GIB
from edgellm.engines.whisper_folder import resolve_whisper
from edgellm.errors import ConfigError, UnsupportedModelError
from edgellm.service.engine_store import engine_store
from edgellm.service.load_estimate import estimate_load_bytes
from edgellm.service.logs import goes_to_journal
from edgellm.service.model_builds import COMPILED_OPTIONS
from edgellm.service.model_kinds import has_sound_engine, kind_of
from edgellm.serving.model_spec import ModelSpec, OpenedModel, ReportProgress
from edgellm.serving.model_table import check_names
from edgellm.serving.settings import ServingSettings
from edgellm.serving.worker.memory_watch import BYTES_PER_MIB
from edgellm.serving.worker.replicas import Replicas
from edgellm.serving.worker.settings import WorkerSettings, WorkerSpec

_log = logging.getLogger(__name__)

_LIMITS_OF_A_MODEL = ("max_queued_requests", "queue_timeout_seconds", "request_timeout_seconds")


def model_specs(settings: Settings) -> Sequence[ModelSpec]:
    """One spec a served model. Raises for a source that is not there, and for two models of one name."""
    require_folder(settings.cache_dir)
    specs = [_spec(model, settings) for model in settings.served_models]
    check_names(specs)
    return specs


def clear_engines(settings: Settings) -> None:
    for entry in engine_store(settings).clear().removed:
        _log.info("removed the engine %s", entry.name)


def _spec(model: ModelSettings, settings: Settings) -> ModelSpec:
    kind = kind_of(model, settings)
    model_id = _model_id(model, settings, kind)
    name = model.name or model_id
    if len(name) > MODEL_NAME_CHARACTERS_MAX or not re.fullmatch(MODEL_NAME_PATTERN, name):
        raise ConfigError(f"{name!r} cannot be a model's name — choose one: --model NAME={model.source}")

    if kind in WITHOUT_TEXT:
        check_settings_of_kind(model, name, kind, allowed=_lengths_of_sound_engine(model, settings, kind))
    workers = _worker_specs(model, name, settings)
    limits = _worker_settings(settings)

    async def open_model(report: ReportProgress) -> OpenedModel:
        opened = await Replicas(workers, limits, report).open()
        if kind == "embeddings" and (output := opened.lanes[0].capabilities.embeddings).size == 0:
            await opened.close() if opened.close is not None else None
            why = f": {output.refusal}" if output.refusal else ""
            raise UnsupportedModelError(f'model {name}: kind = "embeddings", but it makes none{why}')
        return opened

    async def estimate() -> int | None:
        return await estimate_load_bytes(model, settings)

    recommended = CATALOGUE[model.source].sampling if model.source in CATALOGUE else {}
    chosen = model.sampling.model_dump(exclude_none=True)
    return ModelSpec(
        name=name,
        open=open_model,
        required=model.required,
        aliases=model.aliases,
        on_demand=model.residency == "on_demand",
        idle_timeout_seconds=model.idle_timeout_seconds,
        estimate_bytes=estimate,
        source=model.source,
        made_from=(kind, repr(llm_arguments(model)), model.source, model.replicas, model.cpus),
        slots_expected=model.replicas * (model.max_batch_size or 1),
        sampling={**recommended, **chosen},
        serving=serving_settings(settings, model),
        reasoning_parser=model.reasoning_parser,
        tool_call_parser=model.tool_call_parser,
        kind=kind,
        enable_auto_tool_choice=model.enable_auto_tool_choice,
    )


def serving_settings(settings: Settings, model: ModelSettings | None = None) -> ServingSettings:
    """What holds for all models, or for one with limits of its own."""
    limits = {name: getattr(settings.admission, name) for name in (*_LIMITS_OF_A_MODEL, "priority_grants_ahead_max")}
    if model is not None:
        limits |= {name: value for name in _LIMITS_OF_A_MODEL if (value := getattr(model, name)) is not None}
    residency = settings.residency
    memory_gb = residency.model_memory_gb
    return ServingSettings(
        **limits,
        model_memory_bytes=None if memory_gb is None else int(memory_gb * BYTES_PER_GIB),
        swap_after_seconds=residency.swap_after_seconds,
        min_resident_seconds=residency.min_resident_seconds,
    )


def _model_id(model: ModelSettings, settings: Settings, kind: ModelKind) -> str:
    """Resolved now, so that a wrong path ends the start before anything is loaded.

    A model that is not here yet is fetched while it loads: readiness says how far it is.
    """
    source = model.source
    if kind in WITHOUT_TEXT and not has_sound_engine(model, settings):
        if is_fetchable(source) and settings.engines.build_on_start and (source in CATALOGUE or kind == "asr"):
            hub_id = None if source in CATALOGUE else parse_hub_id(source)
            return source if hub_id is None else hub_id.model_id
        find = resolve_whisper if kind == "asr" else resolve_piper_voice
        return find(source, models_dir(settings.cache_dir), download=False).model_id
    if is_fetchable(source):
        hub_id = None if source in CATALOGUE else parse_hub_id(source)
        if hub_id is not None:
            return hub_id.model_id
        if settings.engines.build_on_start:
            return source
    store = engine_store(settings)
    folder = models_dir(settings.cache_dir)
    return resolve(
        source, folder, roots=store.read_only, has_engine=partial(has_engine_of_gguf, store), download=False
    ).model_id


def _worker_specs(model: ModelSettings, name: str, settings: Settings) -> list[WorkerSpec]:
    usable = sorted(os.sched_getaffinity(0))
    cpus = cpu_numbers(model.cpus) if model.cpus else ()
    if absent := [number for number in cpus if number not in usable]:
        raise ConfigError(
            f"model {name}: cpus names CPU {absent[0]}, which the daemon may not use — name others, or none"
        )
    kind = kind_of(model, settings)
    arguments = (
        sequential_arguments(model, settings, len(cpus or usable))
        if kind in WITHOUT_TEXT
        else {
            "model": model.source,
            "cache_dir": str(settings.cache_dir),
            "engine_cache_max_size_gb": settings.engines.cache_max_size_gb,
            "build_on_start": settings.engines.build_on_start,
            "read_only_engine_dirs": list(settings.engines.read_only_dirs),
            **llm_arguments(model),
        }
    )
    if kind not in WITHOUT_TEXT and model.replicas > 1 and model.threads is None and model.runtime != "tensorrt":
        arguments["threads"] = max(1, len(cpus or usable) // model.replicas)
    spec = WorkerSpec(
        name=name,
        arguments=arguments,
        cpus=cpus,
        log_level=settings.log.level,
        log_format=settings.log.format,
        log_to_journal=goes_to_journal(),
        kind=kind,
    )
    return [replace(spec, name=f"{name}/{number}", replica=number) for number in range(model.replicas)]


def _worker_settings(settings: Settings) -> WorkerSettings:
    workers = settings.workers
    return WorkerSettings(
        ping_deadline_seconds=workers.ping_deadline_seconds,
        step_deadline_seconds=workers.step_deadline_seconds,
        cancel_grace_seconds=workers.cancel_grace_seconds,
        available_memory_bytes_min=workers.available_memory_min_mib * BYTES_PER_MIB,
        memory_bytes_max=None if workers.memory_max_mib is None else workers.memory_max_mib * BYTES_PER_MIB,
        restarts_max=workers.restarts_max,
        restart_window_seconds=workers.restart_window_seconds,
    )


def cpu_numbers(cpu_list: str) -> tuple[int, ...]:
    """``"0-2,6"`` as (0, 1, 2, 6)."""
    numbers: set[int] = set()
    for part in cpu_list.split(","):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(numbers))


def check_settings_of_kind(
    model: ModelSettings, name: str, kind: ModelKind, allowed: Mapping[str, int] | None = None
) -> None:
    """Raise ConfigError for a setting that speech recognition, or speech, has no use for."""
    for setting, value in llm_arguments(model).items():
        if setting != "threads" and value != "auto" and setting not in (allowed or {}):
            raise ConfigError(f"model {name}: {setting} is for models that make text; this one {WITHOUT_TEXT[kind]}")


def _lengths_of_sound_engine(model: ModelSettings, settings: Settings, kind: ModelKind) -> dict[str, int]:
    """What was set of the lengths that an engine for speech recognition is compiled for."""
    if kind != "asr" or not has_sound_engine(model, settings):
        return {}
    lengths = {"max_input_len": model.max_input_len, "max_kv_cache_capacity": model.max_kv_cache_capacity}
    return {name: value for name, value in lengths.items() if value is not None}


def sequential_arguments(model: ModelSettings, settings: Settings, cpus: int) -> dict[str, Any]:
    """Those of ``load_transcriber`` and TTS, by name."""
    engines = {"read_only_engine_dirs": list(settings.engines.read_only_dirs)}
    return {
        "model": model.source,
        "cache_dir": str(settings.cache_dir),
        "build_on_start": settings.engines.build_on_start,
        "threads": model.threads or max(1, cpus // model.replicas),
        **(engines if has_sound_engine(model, settings) else {}),
        **_lengths_of_sound_engine(model, settings, kind_of(model, settings)),
    }


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
        "context_cache_recurrent_snapshot_pool_bytes": model.context_reuse_recurrent_snapshot_pool_bytes,
        "context_cache_partial_kv_snapshot_pool_bytes": model.context_reuse_partial_kv_snapshot_pool_bytes,
        "reduced_vocab_dir": model.reduced_vocab_dir and str(model.reduced_vocab_dir),
        "speculative_config": model.speculative_config and model.speculative_config.model_dump(exclude_none=True),
        **{name: getattr(model, name) for name in COMPILED_OPTIONS},
    }
    return {name: value for name, value in arguments.items() if value is not None}
