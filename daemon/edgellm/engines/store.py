"""Store: bundles by key, each built once, published whole or not at all, and found again without a lock.

``<cache>/engines/<model id>-<digest>/`` is a bundle. Beside it, under names with a leading dot: one lock file for
each bundle that was ever built, and the staging directories of builds that are running or were killed. A staging
directory belongs to whoever holds the lock of its bundle; without a holder it is rubbish, removed by the next build.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from edgellm.engines.build_profile import BuildProfile
from edgellm.engines.bundle import Bundle
from edgellm.engines.cache_directory import engines_dir
from edgellm.engines.engine_key import EngineKey
from edgellm.engines.fingerprint import PlatformFingerprint
from edgellm.engines.lowering import LoweringPlan, plan_for
from edgellm.engines.progress import Progress, ProgressCallback, ignore_progress
from edgellm.engines.source import ModelSource
from edgellm.errors import CacheError, CheckpointError

MAX_NAME_CHARACTERS = 80
STAGING_PREFIX = ".staging-"
LOCK_SUFFIX = ".lock"
# Kept free beyond the bundle itself: config, tokenizer and the file system's own needs.
SPARE_DISK_BYTES = 64 << 20
_UNSAFE_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_UNWRITABLE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def prepare(
    source: ModelSource,
    cache_dir: Path,
    *,
    profile: BuildProfile | None = None,
    on_progress: ProgressCallback = ignore_progress,
) -> Bundle:
    """The bundle of ``source``: found, or built here. Two processes that want the same one build it once."""
    profile = profile or BuildProfile()
    plan = plan_for(source, profile.quantisation)
    root = engines_dir(cache_dir)
    resolved = replace(profile, quantisation=plan.quantisation)
    key = EngineKey.of(PlatformFingerprint.native(), resolved, plan.checkpoint_digest, None)
    name = f"{_safe_name(source.model_id)}-{key.short}"
    found = _load_existing(root / name)
    if found is not None:
        return found
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _exclusive(root / f".{name}{LOCK_SUFFIX}", on_progress):
            found = _load_existing(root / name)
            if found is not None:
                return found
            remove_abandoned_staging(root, own=name)
            _require_space(root, plan.output_bytes)
            return _build(plan, root, name, on_progress)
    except OSError as error:
        raise _cache_error(error, root) from error


def remove_abandoned_staging(root: Path, own: str = "") -> None:
    """Remove staging directories that no running build owns; ``own`` is the bundle whose lock the caller holds."""
    for staging in root.glob(f"{STAGING_PREFIX}*"):
        name = staging.name.removeprefix(STAGING_PREFIX).rpartition("-")[0]
        if name == own:
            shutil.rmtree(staging, ignore_errors=True)
            continue
        descriptor = os.open(root / f".{name}{LOCK_SUFFIX}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(staging, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)


def _safe_name(model_id: str) -> str:
    return _UNSAFE_IN_NAMES.sub("-", model_id).strip(".-")[:MAX_NAME_CHARACTERS] or "model"


def _load_existing(directory: Path) -> Bundle | None:
    """A damaged bundle counts as none, so that it is built again: the source is there to build it from."""
    if not directory.is_dir():
        return None
    try:
        return Bundle.load(directory)
    except CheckpointError:
        return None


def _build(plan: LoweringPlan, root: Path, name: str, on_progress: ProgressCallback) -> Bundle:
    staging = Path(tempfile.mkdtemp(prefix=f"{STAGING_PREFIX}{name}-", dir=root))
    try:
        plan.write(staging, on_progress)
        on_progress(Progress("validate", "checking the bundle"))
        staging.chmod(0o755)
        _synchronise(staging)
        Bundle.load(staging)
        target = root / name
        if target.exists():
            # Damaged, or it would have been loaded. Renaming cannot replace a directory that has entries.
            damaged = root / f"{STAGING_PREFIX}{name}-damaged"
            target.rename(damaged)
            shutil.rmtree(damaged, ignore_errors=True)
        staging.rename(target)
        _synchronise_directory(root)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return Bundle.load(target)


@contextmanager
def _exclusive(path: Path, on_progress: ProgressCallback) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_progress(Progress("wait", "waiting for another process that builds this model"))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _require_space(root: Path, output_bytes: int) -> None:
    free_bytes = shutil.disk_usage(root).free
    needed_bytes = output_bytes + SPARE_DISK_BYTES
    if free_bytes < needed_bytes:
        raise CacheError(
            f"{root}: the bundle needs {needed_bytes >> 20} MiB, {free_bytes >> 20} MiB are free: free space there or "
            "set EDGELLM_CACHE_DIR to a folder with more"
        )


def _cache_error(error: OSError, root: Path) -> CacheError:
    if error.errno in _UNWRITABLE:
        return CacheError(
            f"{root}: the cache cannot be written ({error.strerror}): set EDGELLM_CACHE_DIR to a folder that can"
        )
    if error.errno in _FULL:
        return CacheError(f"{root}: no space left: free some or set EDGELLM_CACHE_DIR to a folder with more")
    return CacheError(f"{root}: {error.strerror or error}")


def _synchronise(directory: Path) -> None:
    for path in directory.iterdir():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    _synchronise_directory(directory)


def _synchronise_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
