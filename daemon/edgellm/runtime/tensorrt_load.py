"""Loads a TensorRT bundle: engines from the bundle, weights from the checkpoint, the launch resolved against both."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from edgellm.engines.resources.available_memory import MemoryReader, available_memory_bytes
from edgellm.engines.resources.estimate import Estimate, require_memory
from edgellm.engines.resources.tensorrt_memory import kv_pool_bytes, load_estimate
from edgellm.engines.source import ModelSource, SourceKind
from edgellm.engines.tensorrt.components import TEXT_COMPONENTS, checkpoint_components
from edgellm.engines.tensorrt.engine_metadata import EngineMetadata
from edgellm.engines.tensorrt.layout import EngineLayout
from edgellm.errors import CheckpointError, UnsupportedModelError
from edgellm.media.media_decoder import MediaDecoder
from edgellm.media.visual_limits import VisualRules, video_family
from edgellm.runtime.assembly import assemble, make_driver
from edgellm.runtime.capabilities import Capabilities, Speech
from edgellm.runtime.checkpoint_style import checkpoint_style
from edgellm.runtime.contract import RuntimeModule
from edgellm.runtime.drivers import BlockingDriver, Driver
from edgellm.runtime.engine_shape import SPEECH_NEEDS_BLOCKING, engine_shape, refuse_in_flight
from edgellm.runtime.guided_decoding import GUIDE_TYPES
from edgellm.runtime.llm_options import LLMOptions, RuntimeShape
from edgellm.runtime.loaded_model import BundleLayout, LoadedModel
from edgellm.runtime.omni_speech import OmniSpeech
from edgellm.runtime.speculative import resolve as resolve_speculation

_log = logging.getLogger(__name__)

_WEIGHT_SUFFIX = ".safetensors"


def load_tensorrt_bundle(
    module: RuntimeModule,
    directory: Path,
    source: ModelSource,
    draft: ModelSource | None,
    options: LLMOptions,
    *,
    read_available: MemoryReader = available_memory_bytes,
) -> LoadedModel:
    """Give the bundle in NVIDIA's runtime. Raises ConfigError for a launch that its engines cannot serve."""
    found, metadata = EngineLayout.inspect(directory), EngineMetadata.load(directory)
    if metadata.vocab_size is None:
        raise CheckpointError(f"{directory}: no configuration states the vocabulary of its text engine")
    shape = engine_shape(options, metadata)
    if shape.in_flight_batching:
        refuse_in_flight(found, metadata.model_type)
    speculation = resolve_speculation(options.speculative_launch, metadata.speculation)
    layout = bundle_layout(found)
    require_memory(
        tensorrt_load_estimate(found, metadata, shape, source, draft),
        source.model_id,
        "build with a smaller max_kv_cache_capacity or max_batch_size, choose a smaller model, or end other programs",
        read_available,
    )
    style, template_fields = checkpoint_style(source.path, source.model_id)
    driver = make_driver(
        module,
        layout,
        str(source.path),
        shape,
        speculation=speculation,
        draft_checkpoint_dir=str(draft.path) if draft else "",
    )
    speech = _speech(module, driver, layout, source)
    loaded = assemble(
        module,
        driver,
        None,
        layout=layout,
        model_id=source.model_id,
        model_path=source.path,
        limits=shape.limits,
        has_draft_model=speculation is not None,
        capabilities=Capabilities(
            runtime="tensorrt",
            executor=driver.executor().name,
            max_batch_size=shape.max_batch_size,
            max_input_len=shape.limits.max_input_len,
            max_kv_cache_capacity=shape.limits.max_kv_cache_capacity,
            vocab_size=metadata.vocab_size,
            input_modalities=("text", *input_modalities(layout)),
            in_flight_batching=shape.in_flight_batching,
            context_cache=bool(shape.context_cache.enabled),
            guided_decoding=GUIDE_TYPES,
            speculative_method=metadata.speculation.method,
            kv_cache_dtype=metadata.kv_cache_dtype,
            template_fields=template_fields,
            output_style=style,
            output_modalities=("text",) if speech is None else ("text", "audio"),
            speech=Speech() if speech is None else speech.speech,
            speech_refusal=SPEECH_NEEDS_BLOCKING if found.has_speech and shape.in_flight_batching else "",
        ),
    )
    loaded = replace(loaded, speech=speech)
    if layout.visual_dir is None:
        return loaded
    rules = VisualRules.of_folder(Path(layout.visual_dir))
    return replace(loaded, decoder=MediaDecoder(rules=rules, available_bytes=available_memory_bytes))


def _speech(module: RuntimeModule, driver: Driver, layout: BundleLayout, source: ModelSource) -> OmniSpeech | None:
    """What an Omni bundle speaks with; None for a bundle without it, and where in-flight batching leaves it out."""
    folders = (layout.talker_dir, layout.code_predictor_dir, layout.code2wav_dir)
    talker, predictor, code2wav = folders
    if talker is None or predictor is None or code2wav is None:
        return None
    if not isinstance(driver, BlockingDriver):
        _log.warning("%s: %s", source.model_id, SPEECH_NEEDS_BLOCKING)
        return None
    return OmniSpeech(module, driver, (talker, predictor, code2wav, layout.root, str(source.path)))


def input_modalities(layout: BundleLayout) -> list[str]:
    """What the bundle's encoders take, beside text. Whether it takes videos is the visual engine's family."""
    found: list[str] = []
    if layout.visual_dir is not None:
        found.append("image")
        if video_family(Path(layout.visual_dir)) is not None:
            found.append("video")
    if layout.audio_dir is not None:
        found.append("audio")
    return found


def refuse_speech_alone(source: ModelSource) -> None:
    """Raise UnsupportedModelError for a checkpoint without text before anything is built of it."""
    components = checkpoint_components(source.path) if source.kind is SourceKind.SAFETENSORS else None
    if components is not None and not TEXT_COMPONENTS & set(components):
        raise UnsupportedModelError(f"{source.model_id}: a speech model, and LLM runs text: load_model picks the class")


def bundle_layout(found: EngineLayout) -> BundleLayout:
    folders = {
        f"{name}_dir": None if (folder := found.folder(name)) is None else str(folder)
        for name in ("visual", "audio", "talker", "code_predictor", "code2wav")
    }
    return BundleLayout(str(found.root), engine_type=found.engine_type, **folders)


def tensorrt_load_estimate(
    found: EngineLayout, metadata: EngineMetadata, shape: RuntimeShape, source: ModelSource, draft: ModelSource | None
) -> Estimate:
    """Give what loading takes at its peak, with every sequence at full length."""
    pool_bytes = kv_pool_bytes(
        max_batch_size=shape.max_batch_size,
        max_kv_tokens=shape.limits.max_kv_cache_capacity,
        layer_count=metadata.layer_count,
        kv_head_count=metadata.kv_head_count,
        head_size=metadata.head_size,
        dtype=metadata.kv_cache_dtype,
    )
    return load_estimate(
        checkpoint_weight_bytes=_weight_bytes(source.path),
        engine_bytes=sum(path.stat().st_size for path in found.root.rglob("*.engine")),
        pool_bytes=pool_bytes,
        draft_weight_bytes=_weight_bytes(draft.path) if draft else 0,
    )


def speech_load_estimate(found: EngineLayout, source: ModelSource) -> Estimate:
    """Give what loading a model that only speaks takes. Its own pools are small beside the rest, and not known."""
    return load_estimate(
        checkpoint_weight_bytes=_weight_bytes(source.path),
        engine_bytes=sum(path.stat().st_size for path in found.root.rglob("*.engine")),
        pool_bytes=0,
    )


def _weight_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob(f"*{_WEIGHT_SUFFIX}"))
