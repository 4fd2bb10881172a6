"""Which builder makes engines for a runtime, and what the options of a launch ask of it."""

from __future__ import annotations

from edgellm.engines.build_profile import BuildProfile, RuntimeKind
from edgellm.engines.builder import Builder
from edgellm.engines.native_builder import NativeBuilder
from edgellm.errors import UnsupportedModelError
from edgellm.runtime.llm_options import LLMOptions


def builder_for(runtime: RuntimeKind) -> Builder:
    """Raises UnsupportedModelError where a runtime has no builder."""
    if runtime == "native":
        return NativeBuilder()
    raise UnsupportedModelError("building TensorRT engines is not available yet")


def build_profile(options: LLMOptions) -> BuildProfile:
    """What a build is asked for; values that were left open are the profile's defaults."""
    lengths = {
        name: value
        for name in ("max_input_len", "max_batch_size", "max_kv_cache_capacity")
        if (value := getattr(options, name)) is not None
    }
    return BuildProfile(quantisation=options.quantisation, **lengths)
