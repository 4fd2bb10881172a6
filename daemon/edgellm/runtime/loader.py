"""Loads a model: source → bundle → runtime module → driver. The order in which a model argument can fail, too."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from edgellm.engines.bundle import Bundle
from edgellm.engines.cache_directory import default_cache_dir, engines_dir, models_dir, require_folder
from edgellm.engines.embedding_output import embedding_output
from edgellm.engines.lease import Lease
from edgellm.engines.native_builder import has_engine_of_gguf
from edgellm.engines.progress import Progress, ProgressCallback, ignore_progress
from edgellm.engines.source import ModelSource, SourceKind, resolve
from edgellm.engines.store import Store
from edgellm.engines.visual_part import VISUAL_FOLDER
from edgellm.errors import ConfigError, RequestError
from edgellm.parsing.prompt_codec import PromptCodec
from edgellm.runtime.assembly import assemble, make_driver
from edgellm.runtime.bundle_codec import bundle_codec
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.contract import RuntimeModule
from edgellm.runtime.engine_builders import build_request, builder_for
from edgellm.runtime.guided_decoding import GUIDE_TYPES
from edgellm.runtime.length_limits import LengthLimits
from edgellm.runtime.llm_options import LLMOptions
from edgellm.runtime.load_admission import require_memory_for_load
from edgellm.runtime.loaded_model import BundleLayout, LoadedModel
from edgellm.runtime.modules import RuntimeChoice, SelectedRuntime, runtime_for, select_runtime
from edgellm.runtime.native_request import EXTENSION_PARAMETERS
from edgellm.runtime.process_memory import return_freed_memory
from edgellm.runtime.prompt_front_end import TokenisingFrontEnd
from edgellm.runtime.tensorrt_load import load_tensorrt_bundle, refuse_speech_alone

if TYPE_CHECKING:
    from edgellm.runtime.vision.image_prompts import ImagePrompts

_log = logging.getLogger(__name__)

SHORTEST_CHAT = ({"role": "user", "content": "x"},)


@dataclass(frozen=True, slots=True)
class PreparedBundle:
    """A bundle that is there, kept from eviction by ``lease``, which whoever loads it owns."""

    source: ModelSource
    draft: ModelSource | None
    selected: SelectedRuntime
    lease: Lease


def load(options: LLMOptions, on_progress: ProgressCallback = ignore_progress) -> LoadedModel:
    """Give the model of ``options``, built first if it has to be. Raises an EdgeLLMError that says what to do."""
    prepared = prepare_bundle(options, on_progress, check=_refuse_speech_alone)
    source, selected, lease = prepared.source, prepared.selected, prepared.lease
    try:
        on_progress(Progress("load", f"loading {source.model_id}"))
        if selected.kind == "tensorrt":
            loaded = load_tensorrt_bundle(selected.module, lease.directory, source, prepared.draft, options)
        else:
            bundle = Bundle.load(lease.directory)
            bundle.require_checkpoint(lease.manifest.key.checkpoint_digest)
            loaded = load_native_bundle(
                selected.module, bundle, source, options, guidance_library=selected.guidance_library
            )
    except BaseException:
        lease.close()
        raise
    return_freed_memory()  # reading a tokenizer and a vocabulary frees about as much as it leaves
    return replace(loaded, lease=lease)


def prepare_bundle(
    options: LLMOptions, on_progress: ProgressCallback, *, check: Callable[[ModelSource, str], None]
) -> PreparedBundle:
    """Find the model and its runtime, and the bundle, built first if it has to be. Raises an EdgeLLMError.

    ``check`` may refuse the source on the runtime of that kind before anything is built.
    """
    if options.runtime != "auto":
        options.refuse_unsupported(options.runtime)
    choice = cast("RuntimeChoice", options.runtime)
    selected = select_runtime(choice)
    if selected.kind == "native":
        options.refuse_unsupported(selected.kind)
    cache_dir = Path(options.cache_dir).expanduser() if options.cache_dir else default_cache_dir(os.environ)
    store = engine_store(options, cache_dir)

    def find(model: str) -> ModelSource:
        # Where nothing may be built nothing is fetched either: both take long, and both are the prewarm's work.
        download = options.build_on_start
        return resolve(
            model,
            models_dir(cache_dir),
            roots=store.read_only,
            has_engine=partial(has_engine_of_gguf, store),
            download=download,
            on_progress=on_progress,
        )

    source = find(options.model)
    selected = runtime_for(choice, selected, source)
    _log.info("runtime: %s (%s)", selected.kind, selected.reason)
    options.refuse_unsupported(selected.kind)
    check(source, selected.kind)
    request = build_request(options, source, find, selected.kind)
    builder = builder_for(selected.kind, options=options, cache_dir=cache_dir)
    if options.clear_engine_cache:
        store.clear()
    lease = store.prepare(builder, request, allow_build=options.build_on_start, on_progress=on_progress)
    return PreparedBundle(source, request.draft, selected, lease)


def _refuse_speech_alone(source: ModelSource, runtime: str) -> None:
    if runtime == "tensorrt":
        refuse_speech_alone(source)


def engine_store(options: LLMOptions, cache_dir: Path) -> Store:
    """The store that ``options`` name: the read-only roots, and the writable one below ``cache_dir``."""
    require_folder(cache_dir)
    read_only = [Path(root).expanduser() for root in options.read_only_engine_dirs]
    return Store(
        engines_dir(cache_dir),
        read_only,
        max_size_bytes=options.engine_cache_max_size_bytes,
        models=models_dir(cache_dir),
    )


def load_native_bundle(
    module: RuntimeModule, bundle: Bundle, source: ModelSource, options: LLMOptions, *, guidance_library: str = ""
) -> LoadedModel:
    """Give the bundle in edgellm._native, which takes token ids and brings no tokenizer of its own."""
    shape = options.shape("native", bundle.context_length)
    require_memory_for_load(bundle, shape)
    codec = bundle_codec(bundle.directory)
    front_end = TokenisingFrontEnd(codec, shape.limits, bundle.vocab_size)
    images = _image_prompts(bundle.directory, codec)
    _check_room(codec, shape.limits)
    # A GGUF file is in its bundle whole, which may have come without it.
    described = replace(source, path=bundle.model_file) if source.kind is SourceKind.GGUF else source
    native_options = module.RuntimeOptions()
    native_options.executor = options.executor
    native_options.threads = options.threads or 0
    native_options.max_batch_size = shape.max_batch_size
    native_options.max_input_tokens = shape.limits.max_input_len
    native_options.max_kv_tokens = shape.limits.max_kv_cache_capacity
    native_options.guidance_library = guidance_library
    native_options.prompt_encoder = front_end.encode_native
    native_options.image_processor = images
    visual_dir = None if images is None else str(bundle.directory / VISUAL_FOLDER)
    layout = BundleLayout(str(bundle.directory), visual_dir=visual_dir)
    driver = make_driver(module, layout, str(source.path), shape, options=native_options)
    executor = driver.executor()
    _log.info("model %s runs on executor %s (%s): %s", source.model_id, executor.name, executor.device, executor.reason)
    return assemble(
        module,
        driver,
        front_end,
        layout=layout,
        model_id=source.model_id,
        model_path=source.path,
        limits=shape.limits,
        capabilities=Capabilities(
            runtime="native",
            executor=executor.name,
            max_batch_size=shape.max_batch_size,
            max_input_len=shape.limits.max_input_len,
            max_kv_cache_capacity=shape.limits.max_kv_cache_capacity,
            vocab_size=bundle.vocab_size,
            in_flight_batching=shape.in_flight_batching,
            context_cache=bool(shape.context_cache.enabled),
            input_modalities=("text",) if images is None else ("text", "image"),
            guided_decoding=GUIDE_TYPES if guidance_library else (),
            kv_cache_dtype=bundle.kv_cache_dtype,
            parameters=frozenset(EXTENSION_PARAMETERS),
            executor_device=executor.device,
            executor_reason=executor.reason,
            template_fields=codec.client_fields,
            output_style=codec.output_style(source.model_id),
            embeddings=embedding_output(described),
        ),
    )


def _image_prompts(directory: Path, codec: PromptCodec) -> ImagePrompts | None:
    """None for a bundle of text alone, whose worker does without numpy, as the front end does."""
    if not (directory / VISUAL_FOLDER).exists():
        return None
    from edgellm.runtime.vision.image_prompts import ImagePrompts

    return ImagePrompts.of_bundle(directory, codec.template_ids)


def _check_room(codec: PromptCodec, limits: LengthLimits) -> None:
    """Raise ConfigError for limits under which a model could answer nothing, however short a message is."""
    try:
        shortest_tokens = len(codec.encode_chat(SHORTEST_CHAT, apply_chat_template=codec.template is not None))
    except RequestError:  # its template takes no such chat: what it takes is for its clients to know
        return
    for name, limit_tokens, needed_tokens in (
        ("max_kv_cache_capacity", limits.max_kv_cache_capacity, shortest_tokens + 1),
        ("max_input_len", limits.max_input_len, shortest_tokens),
    ):
        if limit_tokens < needed_tokens:
            raise ConfigError(
                f"{name} {limit_tokens} is too small for this model: a chat of one letter has {shortest_tokens} tokens "
                f"with its template — give at least {needed_tokens}"
            )
