"""GET /v1/models and /v1/models/{id}: what is configured, in which state, and what it can do."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from edgellm.api.sampling import unsupported_fields
from edgellm.engines.embedding_output import EmbeddingOutput
from edgellm.serving.engine_client import EngineClient
from edgellm.serving.model import ServedModel


def list_models(engine: EngineClient) -> dict[str, Any]:
    """Every model, each followed by its aliases."""
    names = [(name, model) for model in engine.models for name in (model.name, *model.spec.aliases)]
    return {"object": "list", "data": [model_object(model, name) for name, model in names]}


def model_object(model: ServedModel, name: str) -> dict[str, Any]:
    """``name`` is the model's, or an alias; answers carry the model's."""
    return {
        "id": name,
        "object": "model",
        "created": model.spec.created_unix_seconds,
        "owned_by": "edgellm",
        "edgellm": {
            "state": model.state.value,
            "kind": "chat" if model.spec.kind == "auto" else model.spec.kind,
            "alias_of": None if name == model.name else model.name,
            "aliases": list(model.spec.aliases),
            "residency": "on_demand" if model.spec.on_demand else "always",
            "required": model.spec.required,
            "memory_bytes": model.memory_bytes,
            "running": model.admission.running,
            "waiting": model.admission.waiting,
            **_abilities(model),
        },
    }


def _embeddings(output: EmbeddingOutput) -> dict[str, Any] | None:
    if output.size == 0:
        return None
    return {"size": output.size, "shorter_sizes": "any" if output.any_shorter else list(output.shorter_sizes)}


def _abilities(model: ServedModel) -> dict[str, Any]:
    """Empty until the model is open: what it can do is not known before."""
    capabilities = model.capabilities
    if capabilities is None:
        return {}
    of_every_kind = {
        "runtime": capabilities.runtime,
        "executor_device": capabilities.executor_device,
        "input_modalities": list(capabilities.input_modalities),
        "output_modalities": list(capabilities.output_modalities),
        "slots": model.admission.capacity,
        "streaming": capabilities.streaming,
    }
    if capabilities.transcription.languages:
        return {
            **of_every_kind,
            "languages": list(capabilities.transcription.languages),
            "translates": capabilities.transcription.translates,
            "times": capabilities.transcription.has_times,
        }
    voices = [voice.name for voice in capabilities.speech.voices]
    if capabilities.only_speaks:
        return {**of_every_kind, "voices": voices}
    style = model.output_style(capabilities)
    return {
        **of_every_kind,
        **({"voices": voices} if voices else {}),
        "executor": capabilities.executor,
        "executor_reason": capabilities.executor_reason,
        "context_length": capabilities.max_kv_cache_capacity,
        "max_input_len": capabilities.max_input_len,
        "max_batch_size": capabilities.max_batch_size,
        "in_flight_batching": capabilities.in_flight_batching,
        "context_cache": capabilities.context_cache,
        "kv_cache_dtype": capabilities.kv_cache_dtype,
        "speculative_method": capabilities.speculative_method,
        "embeddings": _embeddings(capabilities.embeddings),
        "guided_decoding": list(capabilities.guided_decoding),
        "reasoning_parser": style.reasoning_parser,
        "tool_call_parser": style.tool_parser,
        "sampling_defaults": asdict(model.sampling),
        "unsupported_parameters": list(unsupported_fields(capabilities)),
    }
