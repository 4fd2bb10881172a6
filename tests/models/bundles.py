"""Bundles for tests that are not about the store: lowered in this process, into a folder of the test's own."""

from __future__ import annotations

from pathlib import Path

from edgellm.engines.build_profile import BuildProfile
from edgellm.engines.builder import BuildRequest
from edgellm.engines.bundle import Bundle
from edgellm.engines.lease import Lease
from edgellm.engines.lowering import plan_for
from edgellm.engines.native_builder import NativeBuilder, resolved_profile
from edgellm.engines.progress import ProgressCallback, ignore_progress
from edgellm.engines.source import ModelSource, resolve
from edgellm.engines.store import Store


def lowered_bundle_of(model: Path, folder: Path, quantisation: str = "auto") -> Bundle:
    """The bundle of a checkpoint or GGUF file, in ``folder``, which is made."""
    source = resolve(str(model), folder.parent / "models", download=False)
    profile = resolved_profile(BuildRequest(source, BuildProfile(quantisation=quantisation)))
    folder.mkdir(parents=True)
    plan_for(source, profile.quantisation).write(folder, ignore_progress)
    return Bundle.load(folder)


def lease_of(
    source: ModelSource,
    cache: Path,
    quantisation: str = "auto",
    on_progress: ProgressCallback = ignore_progress,
    **store_options: int,
) -> Lease:
    """The bundle of ``source`` in the store below ``cache``, built when it is not there, and held."""
    request = BuildRequest(source, BuildProfile(quantisation=quantisation))
    return Store(cache / "engines", (), **store_options).prepare(NativeBuilder(), request, on_progress=on_progress)


def stored_bundle(
    source: ModelSource, cache: Path, quantisation: str = "auto", on_progress: ProgressCallback = ignore_progress
) -> Bundle:
    """As ``lease_of``, and let go at once."""
    with lease_of(source, cache, quantisation, on_progress) as lease:
        return Bundle.load(lease.directory)
