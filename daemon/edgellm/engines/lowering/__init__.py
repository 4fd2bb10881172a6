"""Lowering: a checkpoint becomes what the native runtime loads. ``plan_for`` picks the way by the source's kind."""

from __future__ import annotations

from edgellm.engines.lowering.gguf_plan import GgufPlan
from edgellm.engines.lowering.plan import LoweringPlan
from edgellm.engines.source import ModelSource, SourceKind

__all__ = ["LoweringPlan", "plan_for"]


def plan_for(source: ModelSource, quantisation: str) -> LoweringPlan:
    """Raises ModelError for a source that is damaged or not supported; writes nothing."""
    if source.kind is SourceKind.GGUF:
        return GgufPlan(source, quantisation)
    from edgellm.engines.lowering.checkpoint_plan import CheckpointPlan  # numpy, only when needed

    return CheckpointPlan(source, quantisation)
