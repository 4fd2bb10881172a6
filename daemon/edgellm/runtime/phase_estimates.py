"""What a model's build and load would take on this machine, before either is begun."""

from __future__ import annotations

from edgellm.engines.builder import Builder, BuildRequest
from edgellm.engines.bundle import Bundle
from edgellm.engines.native_builder import NativePlan
from edgellm.engines.resources.estimate import Estimate
from edgellm.engines.store_entries import Entry
from edgellm.runtime.llm_options import LLMOptions
from edgellm.runtime.load_admission import native_load_estimate, native_shape


def phase_estimates(
    options: LLMOptions, builder: Builder, request: BuildRequest, entry: Entry | None
) -> tuple[Estimate, ...]:
    """The build where there is no ``entry``, then the load as far as it is known before the build.

    Raises ModelError for a checkpoint that cannot be built.
    """
    if entry is not None:
        return (_load_estimate(options, builder, request, entry),)
    plan = builder.plan(request)
    if not isinstance(plan, NativePlan):
        return (plan.estimate,)
    shape = options.shape("native", plan.runtime_shape.context_length)
    return plan.estimate, native_load_estimate(plan.runtime_shape, shape)


def _load_estimate(options: LLMOptions, builder: Builder, request: BuildRequest, entry: Entry) -> Estimate:
    if builder.name == "native":
        bundle = Bundle.load(entry.directory)
        return native_load_estimate(native_shape(bundle), options.shape("native", bundle.context_length))
    from edgellm.engines.tensorrt.engine_metadata import EngineMetadata
    from edgellm.engines.tensorrt.layout import EngineLayout
    from edgellm.runtime.engine_shape import engine_shape
    from edgellm.runtime.tensorrt_load import speech_load_estimate, tensorrt_load_estimate

    found = EngineLayout.inspect(entry.directory)
    if found.engine_type == "unknown":
        return speech_load_estimate(found, request.source)
    metadata = EngineMetadata.load(entry.directory)
    return tensorrt_load_estimate(found, metadata, engine_shape(options, metadata), request.source, request.draft)
