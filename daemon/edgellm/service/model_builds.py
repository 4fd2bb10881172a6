"""What a configured model asks a builder for, the same for the daemon's estimates and for ``edgellm engine``."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import partial

from edgellm.config import ModelSettings, Settings
from edgellm.engines.builder import Builder, BuildRequest
from edgellm.engines.cache_directory import models_dir
from edgellm.engines.native_builder import has_engine_of_gguf
from edgellm.engines.progress import ProgressCallback
from edgellm.engines.source import resolve
from edgellm.engines.store import Store
from edgellm.runtime import modules
from edgellm.runtime.engine_builders import available_builders, build_profile, build_request, builder_for
from edgellm.runtime.llm_options import ContextCacheConfig, LLMOptions, SpeculativeConfig

# Settings that decide what a TensorRT engine is compiled for, or how it is launched; LLM's arguments of these names.
COMPILED_OPTIONS = (
    "max_image_tokens",
    "max_image_tokens_per_image",
    "max_lora_rank",
    "draft_top_k",
    "draft_step",
    "verify_tree_size",
    "max_verify_tree_size",
    "max_draft_tree_size",
)


def build_of(
    model: ModelSettings, settings: Settings, store: Store, on_progress: ProgressCallback, *, download: bool
) -> tuple[Builder, BuildRequest]:
    """The builder and what is asked of it. Raises what the model cannot be built for."""
    options = build_options(model)
    choice = model.runtime
    selected = None if choice == "native" else modules.select_runtime(choice)
    if selected is None or selected.kind == "native" or choice == "tensorrt":
        options.refuse_unsupported("native" if selected is None else selected.kind)
    find = partial(
        resolve,
        models_dir=models_dir(settings.cache_dir),
        roots=store.read_only,
        has_engine=partial(has_engine_of_gguf, store),
        download=download,
        on_progress=on_progress,
    )
    source = find(model.source)
    kind = "native" if selected is None else modules.runtime_for(choice, selected, source).kind
    options.refuse_unsupported(kind)
    return builder_for(kind, options=options, cache_dir=settings.cache_dir), build_request(options, source, find, kind)


def wanted_digest(model: ModelSettings) -> str:
    """The same on every machine that asks for the same engine by the same name. Needs no file of the model: where those
    are absent, no key can be made yet.
    """
    options = build_options(model)
    selected = None if model.runtime == "native" else modules.select_runtime(model.runtime)
    kind = "native" if selected is None else selected.kind
    wanted = {
        "runtime": kind,
        "source": model.source,
        "draft": options.speculative.model,
        "profile": dict(build_profile(options, kind).keyed(kind)),
        # A GGUF file is built for the native runtime also where another is selected: what a machine has is in it whole.
        "platform": {name: dict(builder.fingerprint.keyed) for name, builder in available_builders().items()},
    }
    text = json.dumps(wanted, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def build_options(model: ModelSettings) -> LLMOptions:
    """The options of a launch that a build depends on."""
    speculative = model.speculative_config.model_dump(exclude_none=True) if model.speculative_config else {}
    return LLMOptions(
        model=model.source,
        runtime=model.runtime,
        quantisation=model.quantisation or "auto",
        max_input_len=model.max_input_len,
        max_batch_size=model.max_batch_size,
        max_kv_cache_capacity=model.max_kv_cache_capacity,
        reduced_vocab_dir=None if model.reduced_vocab_dir is None else str(model.reduced_vocab_dir),
        speculative=SpeculativeConfig(**speculative),
        **{name: getattr(model, name) for name in COMPILED_OPTIONS},
    )


def load_options(model: ModelSettings) -> LLMOptions:
    """The options that the memory of a load depends on."""
    return replace(
        build_options(model),
        enable_in_flight_batching=model.enable_in_flight_batching,
        context_cache=ContextCacheConfig(enabled=model.enable_context_reuse),
    )
