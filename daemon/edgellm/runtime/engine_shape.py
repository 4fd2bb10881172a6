"""Launch values against a compiled engine: the engine's win, with a warning; what it cannot do at all is refused."""

from __future__ import annotations

import logging
from dataclasses import replace

from edgellm.engines.tensorrt.engine_metadata import EngineMetadata
from edgellm.engines.tensorrt.layout import EngineLayout
from edgellm.engines.tensorrt.speculation import NO_METHOD
from edgellm.engines.tensorrt.speech_checkpoint import SPEECH_MODEL_TYPE
from edgellm.errors import ConfigError
from edgellm.runtime.length_limits import LengthLimits
from edgellm.runtime.llm_options import (
    DEFAULT_MAX_INPUT_LEN,
    DEFAULT_MAX_KV_CACHE_CAPACITY,
    LLMOptions,
    RuntimeShape,
)

_log = logging.getLogger(__name__)

SPEECH_NEEDS_BLOCKING = (
    "in-flight batching serves text only, so the engines of its speech were not loaded: start without "
    "enable_in_flight_batching to use them"
)


def engine_shape(options: LLMOptions, metadata: EngineMetadata) -> RuntimeShape:
    """Give how the engine is loaded. Its compiled limits cannot be changed by a launch."""
    compiled = metadata.speculation if metadata.speculation.method != NO_METHOD else None
    for name, engine_value in (
        ("max_image_tokens", metadata.max_image_tokens),
        ("max_image_tokens_per_image", metadata.max_image_tokens_per_image),
        ("max_lora_rank", metadata.max_lora_rank),
        ("max_verify_tree_size", compiled.max_verify_tree_size if compiled else None),
        ("max_draft_tree_size", (compiled.max_draft_tree_size or None) if compiled else None),
    ):
        _of_engine(name, getattr(options, name), engine_value, 0)
    capacity = _of_engine(
        "max_kv_cache_capacity",
        options.max_kv_cache_capacity,
        metadata.max_kv_cache_capacity,
        DEFAULT_MAX_KV_CACHE_CAPACITY,
    )
    longest_input = _of_engine("max_input_len", options.max_input_len, metadata.max_input_len, DEFAULT_MAX_INPUT_LEN)
    return RuntimeShape(
        in_flight_batching=bool(options.enable_in_flight_batching),
        max_batch_size=_of_engine("max_batch_size", options.max_batch_size, metadata.max_batch_size, 1),
        limits=LengthLimits(min(longest_input, capacity), capacity),
        context_cache=replace(options.context_cache, enabled=bool(options.context_cache.enabled)),
    )


def refuse_in_flight(layout: EngineLayout | None, model_type: str) -> None:
    """Raise ConfigError where in-flight batching cannot serve a model; it never falls back to something else."""
    if model_type == SPEECH_MODEL_TYPE:
        reason = "standalone speech models have none"
    elif layout is not None and layout.engine_type == "spec_decode":
        reason = "speculative decoding has none"
    else:
        return
    raise ConfigError(f"enable_in_flight_batching: {reason} — start without it")


def _of_engine(name: str, asked: int | None, engine_value: int | None, default: int) -> int:
    """Give the engine's value, told when another was asked for."""
    if engine_value is None:
        return asked or default
    if asked is not None and asked != engine_value:
        _log.warning("%s %d was asked for; the engine was compiled for %d, which is used", name, asked, engine_value)
    return engine_value
