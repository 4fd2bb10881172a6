"""Builder: what turns a checkpoint into a bundle's files. One for each runtime, behind one interface.

The store calls in this order: ``key`` (cheap: a hit stops here), ``plan`` (estimates, before anything is written),
then under the bundle's lock ``BuildPlan.build`` into an empty staging folder, and ``validate`` on what came out. The
store writes ``manifest.json`` and publishes; a builder never sees the final folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from edgellm.engines.build_profile import BuildProfile, RuntimeKind
from edgellm.engines.checkpoint_digest import checkpoint_digest
from edgellm.engines.engine_key import EngineKey
from edgellm.engines.fingerprint import PlatformFingerprint
from edgellm.engines.progress import ProgressCallback
from edgellm.engines.resources.estimate import Estimate
from edgellm.engines.source import ModelSource


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """``draft`` is the draft checkpoint of speculative methods that have one of their own."""

    source: ModelSource
    profile: BuildProfile = field(default_factory=BuildProfile)
    draft: ModelSource | None = None


@dataclass(frozen=True, slots=True)
class BuildOutput:
    """What a build made. ``components`` are names such as llm, visual, audio, talker, spec_draft.

    ``needs_checkpoint``: the runtime reads weights from the checkpoint at load, so both must be kept.
    ``log_name`` is a file of the bundle with the builder's output, None when it had nothing to say.
    """

    components: tuple[str, ...]
    needs_checkpoint: bool = False
    log_name: str | None = None


class BuildPlan(Protocol):
    @property
    def estimate(self) -> Estimate:
        """What the build takes at its peak: disk below the store's root, memory resident. No part: unknown."""
        ...

    def build(self, staging: Path, on_progress: ProgressCallback, *, locks: Sequence[int] = ()) -> BuildOutput:
        """Fill the empty folder ``staging``. Raises ModelError or BuildFailedError.

        ``locks`` are descriptors that a subprocess must inherit, so that the bundle stays locked for as long as
        anything may still write into ``staging``.
        """
        ...


class Builder(Protocol):
    @property
    def name(self) -> RuntimeKind: ...

    @property
    def fingerprint(self) -> PlatformFingerprint:
        """This machine's; what it would be elsewhere is ``EngineKey.as_of``."""
        ...

    def key(self, request: BuildRequest) -> EngineKey:
        """Raises ModelError for a source that is missing or damaged, ConfigError for a profile it cannot have."""
        ...

    def plan(self, request: BuildRequest) -> BuildPlan: ...

    def validate(self, directory: Path) -> None:
        """Check that every component the model owns is there and can be loaded. Raises BundleDamagedError."""
        ...


def source_digest(source: ModelSource) -> str:
    """The digest of the checkpoint's files; the recorded one where a bundle came without its checkpoint."""
    if source.digest is not None and not source.path.exists():
        return source.digest
    return checkpoint_digest(source.path)
