"""Refuses a load that this machine's memory cannot take, with the numbers and the setting that would make it fit."""

from __future__ import annotations

from edgellm.engines.bundle import Bundle
from edgellm.engines.gguf_file import read_gguf_without_arrays
from edgellm.engines.gguf_model import shared_embedding_bytes
from edgellm.engines.resources.available_memory import MemoryReader, available_memory_bytes
from edgellm.engines.resources.estimate import Estimate, require_memory
from edgellm.engines.resources.native_memory import NativeShape, VisionShape, largest_kv_tokens, load_estimate
from edgellm.engines.visual_part import VISUAL_FOLDER, VISUAL_MODEL_FILE, vision_shape
from edgellm.errors import CheckpointError
from edgellm.runtime.llm_options import RuntimeShape


def native_shape(bundle: Bundle) -> NativeShape:
    return NativeShape(
        model_bytes=bundle.model_file.stat().st_size,
        layer_count=bundle.layer_count,
        kv_head_count=bundle.kv_head_count,
        head_size=bundle.head_size,
        vocab_size=bundle.vocab_size,
        context_length=bundle.context_length,
        kv_cache_dtype=bundle.kv_cache_dtype,
        shared_embedding_bytes=_shared_embedding_bytes(bundle),
        vision=_vision_shape(bundle),
    )


def _vision_shape(bundle: Bundle) -> VisionShape | None:
    path = bundle.directory / VISUAL_FOLDER / VISUAL_MODEL_FILE
    if not path.exists():
        return None
    try:
        return vision_shape(read_gguf_without_arrays(path))
    except (CheckpointError, OSError):
        return None  # the load says what is wrong with it


def _shared_embedding_bytes(bundle: Bundle) -> int:
    try:
        return shared_embedding_bytes(read_gguf_without_arrays(bundle.model_file))
    except (CheckpointError, OSError):
        return 0  # the load says what is wrong with it


def native_load_estimate(native: NativeShape, shape: RuntimeShape) -> Estimate:
    """What a load in that shape takes at its peak, with every sequence at full length."""
    return load_estimate(
        native,
        shape.limits.max_kv_cache_capacity,
        shape.max_batch_size,
        context_reuse=bool(shape.context_cache.enabled),
    )


def require_memory_for_load(
    bundle: Bundle, shape: RuntimeShape, read_available: MemoryReader = available_memory_bytes
) -> None:
    """Raises InsufficientMemoryError."""
    available_bytes = read_available()
    if available_bytes is None:
        return
    fitting_tokens = largest_kv_tokens(
        native_shape(bundle),
        shape.max_batch_size,
        available_bytes,
        context_reuse=bool(shape.context_cache.enabled),
    )
    remedy = (
        f"set max_kv_cache_capacity to {fitting_tokens} or less, or lower max_batch_size (now {shape.max_batch_size})"
        if fitting_tokens
        else "lower max_batch_size, choose a smaller model or quantisation, or end other programs"
    )
    require_memory(native_load_estimate(native_shape(bundle), shape), bundle.model_id, remedy, lambda: available_bytes)
