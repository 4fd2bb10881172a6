"""Which builder makes engines for a runtime, and what the options of a launch ask of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgellm.engines.build_profile import BuildProfile, RuntimeKind
from edgellm.engines.builder import Builder, BuildRequest
from edgellm.engines.native_builder import NativeBuilder
from edgellm.engines.source import ModelSource
from edgellm.engines.tensorrt.speculation import (
    METHODS_WITH_DRAFT_CHECKPOINT,
    NO_METHOD,
    TREE_BASE_METHODS,
    engine_method,
)
from edgellm.errors import EdgeLLMError, RuntimeUnavailableError
from edgellm.runtime.llm_options import LLMOptions
from edgellm.runtime.modules import PLUGIN_VARIABLE, builder_module, platform_facts

if TYPE_CHECKING:
    from edgellm.engines.tensorrt.platform_facts import PlatformFacts

LOGS_FOLDER = "build-logs"
_LENGTHS = ("max_input_len", "max_batch_size", "max_kv_cache_capacity")
_IMAGE_LIMITS = ("max_image_tokens", "max_image_tokens_per_image")

RUNTIME_KINDS: tuple[RuntimeKind, ...] = ("native", "tensorrt")


def builder_for(
    runtime: RuntimeKind,
    *,
    options: LLMOptions | None = None,
    cache_dir: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Builder:
    """Give the builder of ``runtime``. The output of failed builds is kept below ``cache_dir``.

    ``options`` are those of the launch, where something is to be built.

    Raises RuntimeUnavailableError where this machine cannot tell what engines would be built for.
    """
    if runtime == "native":
        return NativeBuilder()
    vocabulary = options.reduced_vocab_dir if options else None
    return _tensorrt_builder(
        platform_facts(),
        cache_dir,
        os.environ if environment is None else environment,
        Path(vocabulary).expanduser() if vocabulary else None,
    )


def available_builders() -> dict[str, Builder]:
    """The builders that this machine has, by runtime."""
    builders: dict[str, Builder] = {}
    for runtime in RUNTIME_KINDS:
        with suppress(EdgeLLMError):
            builders[runtime] = builder_for(runtime)
    return builders


def build_request(
    options: LLMOptions, source: ModelSource, find_draft: Callable[[str], ModelSource], runtime: RuntimeKind
) -> BuildRequest:
    """Give what ``options`` ask a builder for; ``find_draft`` resolves a draft checkpoint's model argument."""
    profile = build_profile(options, runtime)
    draft = options.speculative.model
    has_draft = runtime == "tensorrt" and profile.spec_type in METHODS_WITH_DRAFT_CHECKPOINT and bool(draft)
    return BuildRequest(source, profile, find_draft(draft) if has_draft else None)


def build_profile(options: LLMOptions, runtime: RuntimeKind = "native") -> BuildProfile:
    """Give the profile; values that were left open are its defaults.

    A TensorRT base is compiled for trees when the launch branches, and for as many nodes as it verifies.
    """
    lengths = {name: value for name in _LENGTHS if (value := getattr(options, name)) is not None}
    if runtime == "native":
        return BuildProfile(quantisation=options.quantisation, **lengths)
    images = {name: value for name in _IMAGE_LIMITS if (value := getattr(options, name)) is not None}
    model: dict[str, Any] = {"max_lora_rank": options.max_lora_rank or 0}
    if options.reduced_vocab_dir is not None:
        from edgellm.engines.tensorrt.tensorrt_builder import reduced_vocabulary_digest

        model["reduced_vocab_digest"] = reduced_vocabulary_digest(Path(options.reduced_vocab_dir).expanduser())
    method = engine_method(options.speculative.method, options.speculative.model)
    if method == NO_METHOD:
        return BuildProfile(**lengths, **images, **model)
    verify_size = options.max_verify_tree_size or options.verify_tree_size
    draft_size = options.max_draft_tree_size
    if draft_size is None and method == "dflash":
        draft_size = verify_size
    return BuildProfile(
        **lengths,
        **images,
        **model,
        spec_type=method,
        tree_base=options.speculative_launch.top_k > 1 and method in TREE_BASE_METHODS,
        max_verify_tree_size=verify_size,
        max_draft_tree_size=draft_size,
    )


def _tensorrt_builder(
    facts: PlatformFacts, cache_dir: Path | None, environment: Mapping[str, str], reduced_vocab: Path | None
) -> Builder:
    from edgellm.engines.tensorrt.platform_fingerprint import tensorrt_fingerprint
    from edgellm.engines.tensorrt.tensorrt_builder import BuilderProgram, TensorRTBuilder

    module = builder_module()
    if not module:
        raise RuntimeUnavailableError(
            "the builder of tensorrt-edgellm is not installed: pip install tensorrt-edgellm, or see edgellm doctor"
        )
    # The builder of a wheel finds its own plugin; that of a source build is told.
    plugin = environment.get(PLUGIN_VARIABLE, "") if facts.payloads is None else ""
    program = BuilderProgram(
        (sys.executable, "-P", "-m", module),  # -P: whatever lies in the current folder is not NVIDIA's
        plugin=Path(plugin) if plugin else None,
        logs=cache_dir / LOGS_FOLDER if cache_dir else None,
        environment=environment,
    )
    return TensorRTBuilder(program, tensorrt_fingerprint(facts), reduced_vocab=reduced_vocab)
