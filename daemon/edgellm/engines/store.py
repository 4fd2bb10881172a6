"""Store: bundles by key: each built once, published whole or not at all, and found again without a lock.

Roots are searched in order: read-only ones (baked into an image; neither locked nor evicted), then the writable one.
What lies in a root is in ``store_entries``, the way in is ``store_staging``, the way out ``store_eviction``.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgellm.config.cache_location import BAKED_ENGINES_DIR
from edgellm.engines.builder import Builder, BuildOutput, BuildRequest
from edgellm.engines.bundle_files import problems_of, record_files
from edgellm.engines.checkpoint_digest import Signature, checkpoint_signature
from edgellm.engines.engine_key import Difference, EngineKey
from edgellm.engines.file_system import cache_error
from edgellm.engines.imported_checkpoints import remove_unowned_checkpoints
from edgellm.engines.lease import Lease, lease_bundle
from edgellm.engines.manifest import Manifest, printable_text
from edgellm.engines.progress import Progress, ProgressCallback, ignore_progress
from edgellm.engines.resources.available_memory import MemoryReader, available_memory_bytes
from edgellm.engines.resources.estimate import require_memory
from edgellm.engines.store_entries import Entry, entries_of, names_of_key, pin_path, read_entry
from edgellm.engines.store_eviction import Eviction, evict, mark_used, remove_all
from edgellm.engines.store_staging import Staging, open_staging, remove_leftovers
from edgellm.errors import BundleDamagedError, CacheError, CheckpointError, EngineMissingError, ModelSourceError

_log = logging.getLogger(__name__)

BYTES_PER_GIB = 1 << 30
DEFAULT_MAX_SIZE_BYTES = 50 * BYTES_PER_GIB
# Kept free beyond the bundle itself: config, tokenizer and the file system's own needs.
SPARE_DISK_BYTES = 64 << 20
BUILD_REMEDY = (
    "end other programs, or build on a machine with more and move the engine with edgellm engine export and import"
)
BAKED_ROOT = Path(BAKED_ENGINES_DIR)


@dataclass(frozen=True, slots=True)
class Nearest:
    """The bundle that differs least from a key, and in what: ``ours`` is the key's value, ``theirs`` the bundle's."""

    entry: Entry
    differences: tuple[Difference, ...]


class Store:
    """Thread-safe, and safe between processes. ``max_size_bytes`` bounds the writable root.

    ``models`` is the models folder whose imported checkpoints go with the last engine that was built from them.
    """

    def __init__(
        self,
        writable: Path,
        read_only: Sequence[Path] = (BAKED_ROOT,),
        *,
        max_size_bytes: int = DEFAULT_MAX_SIZE_BYTES,
        read_available: MemoryReader = available_memory_bytes,
        models: Path | None = None,
    ) -> None:
        self.writable = writable
        self.read_only = tuple(read_only)
        self.max_size_bytes = max_size_bytes
        self._read_available = read_available
        self._models = models

    # Finding

    def entries(self) -> list[Entry]:
        """Every bundle of every root, in the order of a search."""
        return [entry for root, read_only in self._roots() for entry in entries_of(root, read_only=read_only)]

    def find(self, key: EngineKey) -> Entry | None:
        """The entry that a lease of ``key`` would take, unchecked; None when there is none."""
        for root, read_only in self._roots():
            for name in names_of_key(root, key.short):
                entry = read_entry(root, name, read_only=read_only)
                if entry.key == key:
                    return entry
        return None

    def lease(self, key: EngineKey) -> Lease | None:
        """The bundle of ``key``, checked and held; None for a miss.

        A damaged bundle counts as a miss, with a warning that names the file: in the writable root the next build
        replaces it. Raises ManifestVersionError for a bundle of a newer edgellm, which is not ours to replace.
        """
        for root, read_only in self._roots():
            for name in names_of_key(root, key.short):
                try:
                    lease = lease_bundle(root / name, read_only=read_only, key=key)
                except BundleDamagedError as error:
                    _log.warning("%s", error)
                    continue
                except OSError as error:
                    _log.warning("%s: %s", root / name, error.strerror)
                    continue
                if lease is not None:
                    if not read_only:
                        mark_used(root, name)
                    return lease
        return None

    def nearest(self, key: EngineKey) -> Nearest | None:
        """The readable bundle with the fewest differing inputs; of equals one of the same checkpoint."""
        found = [Nearest(entry, key.differences(entry.key)) for entry in self.entries() if entry.key is not None]
        return min(
            found,
            key=lambda near: (
                any(difference.name == "runtime" for difference in near.differences),
                any(difference.name == "checkpoint" for difference in near.differences),
                len(near.differences),
            ),
            default=None,
        )

    # Building

    def prepare(
        self,
        builder: Builder,
        request: BuildRequest,
        *,
        allow_build: bool = True,
        force: bool = False,
        on_progress: ProgressCallback = ignore_progress,
    ) -> Lease:
        """The bundle that ``builder`` makes of ``request``, held: found, or built here.

        Of several processes that want the same one, one builds it. ``force`` builds even if there is one. Raises
        EngineMissingError when there is none and ``allow_build`` is false, ModelError for what is wrong with the
        source, InsufficientMemoryError, BuildFailedError, CacheError, ManifestVersionError.
        """
        self.clean()
        before = _signatures(request)
        key = builder.key(request)
        lease = None if force else self.lease(key)
        if lease is not None:
            return lease
        if not allow_build:
            raise EngineMissingError(self._missing(key, request))
        _require_sources(request)
        plan = builder.plan(request)
        with self.staging(key, on_progress) as staging:
            lease = None if force else self.lease(key)
            if lease is not None:
                return lease
            require_memory(plan.estimate, request.source.model_id, BUILD_REMEDY, self._read_available)
            self.make_room(plan.estimate.disk_bytes, keep=key.short)
            output = plan.build(staging.directory, on_progress, locks=(staging.lock,))
            on_progress(Progress("validate", "checking the bundle"))
            builder.validate(staging.directory)
            manifest = _manifest(builder, request, key, output, staging, on_progress)
            if _signatures(request) != before:
                raise CheckpointError(
                    f"{request.source.path}: its files changed while the engine was built — try again when nobody "
                    "writes them"
                )
            on_progress(Progress("publish", "publishing the bundle"))
            directory = staging.publish(manifest)
            lease = lease_bundle(directory, read_only=False, key=key)
        if lease is None:
            raise CacheError(f"{directory}: removed by another process as soon as it was built — try again")
        mark_used(self.writable, directory.name)
        self.enforce_size(keep=key.short)
        return lease

    @contextmanager
    def staging(
        self, key: EngineKey, on_progress: ProgressCallback = ignore_progress, *, subprocesses: bool = True
    ) -> Iterator[Staging]:
        """A folder to fill and publish under the lock of ``key``; see ``open_staging``. Raises CacheError."""
        with open_staging(self.writable, key, on_progress, subprocesses=subprocesses) as staging:
            yield staging

    # Keeping within bounds

    def clean(self) -> None:
        """Remove what killed builds and the first layout left behind. Costs one listing when there is nothing."""
        try:
            remove_leftovers(self.writable)
        except OSError as error:
            _log.debug("%s: not cleaned: %s", self.writable, error.strerror)

    def make_room(self, needed_bytes: int, *, keep: str = "") -> None:
        """Evict until ``needed_bytes`` more fit under the cap and on the disk. Raises CacheError with numbers."""
        if needed_bytes > self.max_size_bytes:
            raise CacheError(
                f"{self.writable}: the engine needs {_mib(needed_bytes)}, the cache may hold "
                f"{self.max_size_bytes >> 20} MiB — raise engine_cache_max_size_gb"
            )
        self.enforce_size(needed_bytes, keep=keep)
        wanted_bytes = needed_bytes + SPARE_DISK_BYTES
        free_bytes = shutil.disk_usage(self.writable).free
        if free_bytes < wanted_bytes:
            self._evict(wanted_bytes - free_bytes, keep)
            free_bytes = shutil.disk_usage(self.writable).free
        if free_bytes < wanted_bytes:
            raise CacheError(
                f"{self.writable}: the bundle needs {_mib(wanted_bytes)}, {free_bytes >> 20} MiB are free — free space "
                "there or set EDGELLM_CACHE_DIR to a folder with more"
            )

    def enforce_size(self, needed_bytes: int = 0, *, keep: str = "") -> None:
        """Evict until the writable root with ``needed_bytes`` more is within its cap, as far as that goes."""
        total_bytes = sum(entry.size_bytes for entry in entries_of(self.writable, read_only=False))
        excess_bytes = total_bytes + needed_bytes - self.max_size_bytes
        if excess_bytes <= 0:
            return
        result = self._evict(excess_bytes, keep)
        if result.freed_bytes < excess_bytes:
            _log.warning(
                "%s: %s over engine_cache_max_size_gb, and nothing more can go%s",
                self.writable,
                _mib(excess_bytes - result.freed_bytes),
                "".join(f"; {name} is {reason}" for name, reason in result.kept.items()),
            )

    def prune(self, max_size_bytes: int | None = None) -> Eviction:
        """Evict until the writable root holds ``max_size_bytes`` (the cap when None)."""
        self.clean()
        limit_bytes = self.max_size_bytes if max_size_bytes is None else max_size_bytes
        total_bytes = sum(entry.size_bytes for entry in entries_of(self.writable, read_only=False))
        result = self._evict(total_bytes - limit_bytes, "")
        self._drop_checkpoints(result)
        return result

    def clear(self) -> Eviction:
        """Remove every bundle of the writable root, pinned ones too; those that are loaded stay. Raises CacheError."""
        self.clean()
        return self.remove(entries_of(self.writable, read_only=False))

    def remove(self, entries: Sequence[Entry]) -> Eviction:
        """Remove bundles of the writable root by name; those that are loaded stay. Raises CacheError."""
        for entry in entries:
            if entry.read_only:
                raise CacheError(f"{entry.directory}: part of a read-only root, which edgellm never changes")
        try:
            result = remove_all(entries, pinned_too=True)
        except OSError as error:
            raise cache_error(error, self.writable) from error
        self._drop_checkpoints(result)
        return result

    def pin(self, entry: Entry) -> None:
        """Keep the bundle from eviction, until ``unpin``; one of a read-only root is kept anyway."""
        if not entry.read_only:
            try:
                pin_path(entry.root, entry.short_key).touch()
            except OSError as error:
                raise cache_error(error, entry.root) from error

    def unpin(self, entry: Entry) -> None:
        try:
            pin_path(entry.root, entry.short_key).unlink(missing_ok=True)
        except OSError as error:
            raise cache_error(error, entry.root) from error

    def verify(self, entry: Entry, on_progress: ProgressCallback = ignore_progress) -> list[str]:
        """What is wrong with the bundle by every byte of it, each with its file; empty when nothing is."""
        if entry.manifest is None:
            return [entry.problem or f"{entry.directory}: no manifest"]
        return list(problems_of(entry.directory, entry.manifest, on_progress))

    def _evict(self, wanted_bytes: int, keep: str) -> Eviction:
        try:
            result = evict(self.writable, wanted_bytes, keep=keep)
        except OSError as error:
            raise cache_error(error, self.writable) from error
        for entry in result.removed:
            _log.info("evicted %s (%s)", entry.name, _mib(entry.size_bytes))
        if result.removed:
            self._drop_checkpoints(result)
        return result

    def _drop_checkpoints(self, result: Eviction) -> None:
        """Remove imported checkpoints that no engine is left of; what cannot go now goes with the next eviction."""
        if self._models is None:
            return
        try:
            freed = remove_unowned_checkpoints(self._models, self.entries, self.read_only)
        except OSError as error:
            _log.warning("%s: not cleaned: %s", self._models, error.strerror)
            return
        result.removed_checkpoints.update(freed)
        for digest, size_bytes in freed.items():
            _log.info("removed the imported checkpoint %s (%s): no engine is left of it", digest[:16], _mib(size_bytes))

    def _roots(self) -> Iterator[tuple[Path, bool]]:
        for root in self.read_only:
            yield root, True
        yield self.writable, False

    def _missing(self, key: EngineKey, request: BuildRequest) -> str:
        near = self.nearest(key)
        reason = ""
        if near is not None and near.differences:
            reason = f"; the nearest, {near.entry.name}, differs in {near.differences[0]}"
        elif near is not None:
            reason = f"; {near.entry.name} is damaged"
        return (
            f"{request.source.model_id}: no engine {key.short} in {', '.join(str(root) for root, _ in self._roots())}, "
            f"and building is off here{reason} — run edgellm engine build, or where it is a service systemctl restart "
            "edgellm-prewarm; edgellm engine explain says more"
        )


def _require_sources(request: BuildRequest) -> None:
    """Raise ModelSourceError where an engine came without its checkpoint and another has to be built."""
    for source in (request.source, request.draft):
        if source is not None and source.digest is not None and not source.path.exists():
            raise ModelSourceError(
                f"{source.model_id}: its engine came without its checkpoint, and another engine is needed — run: "
                f"edgellm models add {source.source_ref or source.model_id}"
            )


def _signatures(request: BuildRequest) -> list[Signature]:
    sources = [source for source in (request.source, request.draft) if source is not None]
    # A bundle may have come without its checkpoint: the recorded digest finds it.
    return [checkpoint_signature(source.path) for source in sources if source.digest is None or source.path.exists()]


def _manifest(
    builder: Builder,
    request: BuildRequest,
    key: EngineKey,
    output: BuildOutput,
    staging: Staging,
    on_progress: ProgressCallback,
) -> Manifest:
    return Manifest(
        key=key,
        model_id=printable_text(request.source.model_id),
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        builder=builder.name,
        components=output.components,
        files=record_files(staging.directory, on_progress),
        source_ref=request.source.source_ref,
        platform=dict(builder.fingerprint.recorded),
        needs_checkpoint=output.needs_checkpoint,
        log_name=output.log_name,
    )


def _mib(size_bytes: int) -> str:
    return f"{-(-size_bytes >> 20)} MiB"
