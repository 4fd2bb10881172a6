"""Assembly: the native runtime object behind a driver, and the parts of a loaded model around it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from edgellm.errors import UnsupportedModelError
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.contract import RuntimeModule
from edgellm.runtime.drivers import BlockingDriver, Driver, InFlightDriver
from edgellm.runtime.generation import GenerationRequest
from edgellm.runtime.length_limits import LengthLimits
from edgellm.runtime.llm_options import RuntimeShape
from edgellm.runtime.loaded_model import BundleLayout, LoadedModel
from edgellm.runtime.native_errors import map_load_error
from edgellm.runtime.native_request import NativeRequestBuilder
from edgellm.runtime.prompt_front_end import MeasuringFrontEnd, PromptFrontEnd
from edgellm.runtime.speculative import SpeculativeShape

_log = logging.getLogger(__name__)

LOADABLE_ENGINE_TYPES = ("llm", "spec_decode")


def make_driver(
    module: RuntimeModule,
    layout: BundleLayout,
    checkpoint_dir: str,
    shape: RuntimeShape,
    *,
    speculation: SpeculativeShape | None = None,
    draft_checkpoint_dir: str = "",
    **extra: Any,
) -> Driver:
    """Construct the native runtime object; its own reason ends up in the start-up error.

    ``draft_checkpoint_dir`` is "" for methods whose draft layers are part of the checkpoint.
    """
    if layout.engine_type not in LOADABLE_ENGINE_TYPES:
        raise UnsupportedModelError(f"{layout.root}: a bundle of type {layout.engine_type!r} is no text model")
    cache = module.ContextCacheConfig()
    cache.enabled = bool(shape.context_cache.enabled)
    cache.max_records = shape.context_cache.max_records
    cache.recurrent_snapshot_pool_bytes = shape.context_cache.recurrent_snapshot_pool_bytes
    cache.partial_kv_snapshot_pool_bytes = shape.context_cache.partial_kv_snapshot_pool_bytes
    media_dir = layout.media_dir
    try:
        if shape.in_flight_batching:
            engine = module.RequestEngine(
                layout.root, media_dir, {}, checkpoint_dir, cache, max_batch_size=shape.max_batch_size, **extra
            )
            return InFlightDriver(module, engine, context_cache=cache.enabled)
        if speculation is None:
            runtime = module.LLMRuntime(layout.root, media_dir, {}, checkpoint_dir, cache, **extra)
        else:
            runtime = module.LLMRuntime(
                layout.root,
                media_dir,
                {},
                speculation.top_k,
                speculation.step,
                speculation.verify_tree_size,
                checkpoint_dir,
                draft_checkpoint_dir,
                cache,
                speculation.block_size,
                **extra,
            )
        if not runtime.capture_decoding_cuda_graph():
            _log.debug("decoding runs without a captured graph")
        return BlockingDriver(module, runtime, context_cache=cache.enabled)
    except Exception as error:  # pybind raises whatever type the module registered
        raise map_load_error(module, error, in_flight_batching=shape.in_flight_batching) from error


def assemble(
    module: RuntimeModule,
    driver: Driver,
    front_end: PromptFrontEnd | None,
    *,
    layout: BundleLayout,
    model_id: str,
    model_path: Path,
    capabilities: Capabilities,
    limits: LengthLimits,
    has_draft_model: bool = False,
) -> LoadedModel:
    """Put the parts together; without a front end of its own the runtime's tokenizer measures prompts."""
    builder = NativeRequestBuilder(module, context_cache=capabilities.context_cache, has_draft_model=has_draft_model)

    def count_tokens(request: GenerationRequest) -> int | None:
        return driver.count_prompt_tokens(builder.build(request)[0])

    return LoadedModel(
        model_id=model_id,
        model_path=model_path,
        layout=layout,
        capabilities=capabilities,
        driver=driver,
        builder=builder,
        front_end=front_end or MeasuringFrontEnd(limits, count_tokens),
        has_draft_model=has_draft_model,
    )
