"""Fetches a model of a hub: only the files it needs, each verified, resumed where an earlier try ended."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgellm.engines import whisper_files
from edgellm.engines.file_digest import git_blob_sha1, whole_file_sha256
from edgellm.engines.file_lock import exclusive_lock
from edgellm.engines.file_system import synchronise_directory
from edgellm.engines.gguf_placement import place_file
from edgellm.engines.hub.hub_id import HubId
from edgellm.engines.hub.layout import STAGING_PREFIX, RepositoryFolder
from edgellm.engines.hub.selection import (
    CONFIG_FILE,
    INDEX_FILE,
    HubFile,
    files_of_whisper,
    gguf_file,
    metadata_files,
    usable_files,
    weight_files,
)
from edgellm.engines.progress import Progress, ProgressCallback, ignore_progress
from edgellm.errors import CacheError, CheckpointError, ModelSourceError

if TYPE_CHECKING:
    from edgellm.engines.hub.client import HubClient

BUNDLE_MODEL_FILE = "llm.gguf"
REPORT_BYTES = 1 << 20
SPARE_DISK_BYTES = 64 << 20
SHA256_DIGITS = 64
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})


@dataclass(frozen=True, slots=True)
class Fetched:
    """``path`` is the folder of a safetensors checkpoint or a Whisper model, or the GGUF file."""

    commit: str
    path: Path
    kind: str
    gguf_name: str = ""


@dataclass(frozen=True, slots=True)
class _Selected:
    """``known`` are wanted in any case, and with ``has_weights_to_choose`` those that these name besides."""

    kind: str
    known: list[HubFile]
    gguf_name: str = ""
    has_weights_to_choose: bool = False


def fetch(
    hub_id: HubId,
    models_dir: Path,
    refuse: Callable[[str, Iterable[str]], None],
    on_progress: ProgressCallback = ignore_progress,
    client: HubClient | None = None,
) -> Fetched:
    """Fetch what ``hub_id`` means now. ``refuse`` is given the label and the root's file names before any file is read.

    Raises ModelError for what the hub refuses and CacheError for what the disk does.
    """
    if client is None:
        from edgellm.engines.hub.client import HubClient  # the library behind it is slow to import

        client = HubClient(hub_id, on_progress)
    on_progress(Progress("ask", f"asking {client.endpoint_name} for {hub_id}"))
    repository = client.describe()
    files = usable_files(repository.files)
    folder = RepositoryFolder.of(models_dir, hub_id.repository)
    selected = _select(hub_id, files, refuse)
    target = folder.snapshot(repository.commit, selected.gguf_name)
    path = target / selected.gguf_name if selected.gguf_name else target
    fetched = Fetched(repository.commit, path, selected.kind, selected.gguf_name)
    if target.is_dir():
        return fetched
    transfer = _Transfer(hub_id, folder, client, repository.commit, on_progress)
    try:
        folder.blobs.mkdir(parents=True, exist_ok=True)
        folder.snapshots.mkdir(exist_ok=True)
        with exclusive_lock(
            folder.lock, lambda: on_progress(Progress("wait", f"waiting for another process that downloads {hub_id}"))
        ):
            if not target.is_dir():
                _remove_staging(folder)
                transfer.fetch_all(selected, files)
                _publish(folder, transfer.files, target)
    except OSError as error:
        raise disk_failure(error, folder.root) from None
    return fetched


def _select(hub_id: HubId, files: dict[str, HubFile], refuse: Callable[[str, Iterable[str]], None]) -> _Selected:
    names = list(dict.fromkeys(name.partition("/")[0] for name in files))
    if hub_id.file or _holds_gguf_only(names):
        gguf = gguf_file(hub_id, files)
        return _Selected("gguf", [gguf], gguf.name)
    refuse(str(hub_id), names)
    if whisper_files.looks_like_whisper(names):
        return _Selected(whisper_files.KIND, files_of_whisper(files))
    return _Selected("safetensors", metadata_files(files), has_weights_to_choose=True)


def _holds_gguf_only(names: list[str]) -> bool:
    """A bundle's own model file is a GGUF file too."""
    others = any(name.endswith((".safetensors", ".onnx", ".engine")) or name == BUNDLE_MODEL_FILE for name in names)
    return not others and any(name.lower().endswith(".gguf") for name in names)


class _Transfer:
    """One run over the files of a model; ``files`` is what it has so far."""

    def __init__(
        self, hub_id: HubId, folder: RepositoryFolder, client: HubClient, commit: str, on_progress: ProgressCallback
    ) -> None:
        self._id, self._folder, self._client, self._commit = hub_id, folder, client, commit
        self._on_progress = on_progress
        self._total_bytes = 0
        self._done_bytes = 0
        self._reported_bytes = 0
        self.files: list[HubFile] = []

    def fetch_all(self, selected: _Selected, files: dict[str, HubFile]) -> None:
        # The configuration first: it says which weights there are, and what is wrong with it costs no download.
        self._fetch(selected.known)
        if not selected.has_weights_to_choose:
            return
        index = self._read_json(files[INDEX_FILE]) if INDEX_FILE in files else None
        weights = weight_files(self._id, files, index, self._read_json(files[CONFIG_FILE]))
        self._fetch(weights)

    def _fetch(self, wanted: list[HubFile]) -> None:
        missing = [file for file in wanted if not self._folder.blob(file.digest).exists()]
        self._total_bytes += sum(file.size_bytes for file in missing)
        _require_space(self._folder, missing)
        for file in missing:
            if not self._folder.blob(file.digest).exists():  # two names may share their content
                self._fetch_file(file)
        self.files += wanted

    def _fetch_file(self, file: HubFile) -> None:
        partial = self._folder.partial(file.digest)
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            start_bytes = self._done_bytes
            have_bytes = os.fstat(descriptor).st_size
            if have_bytes > file.size_bytes:
                os.ftruncate(descriptor, 0)
                have_bytes = 0

            def write(position: int, block: bytes) -> None:
                if position == 0:
                    os.ftruncate(descriptor, 0)
                written = 0
                while written < len(block):
                    written += os.pwrite(descriptor, block[written:], position + written)
                self._report(file, start_bytes + position + len(block))

            self._client.receive(self._commit, file, have_bytes, write)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if not _is_intact(partial, file):
            partial.unlink()
            raise ModelSourceError(
                f"{self._id}: {file.name} arrived with another content than {self._client.endpoint_name} announced: it "
                "was not kept — try again, and check proxies"
            )
        partial.rename(self._folder.blob(file.digest))
        self._done_bytes = start_bytes + file.size_bytes

    def _report(self, file: HubFile, done_bytes: int) -> None:
        is_end = done_bytes >= self._total_bytes
        if not is_end and abs(done_bytes - self._reported_bytes) < REPORT_BYTES:
            return
        self._reported_bytes = done_bytes
        self._on_progress(
            Progress(
                "download", f"downloading {self._id} ({file.name})", done_bytes, max(done_bytes, self._total_bytes)
            )
        )

    def _read_json(self, file: HubFile) -> dict[str, Any]:
        try:
            value = json.loads(self._folder.blob(file.digest).read_bytes())
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise CheckpointError(f"{self._id}: its {file.name} is not a JSON object")
        return value


def _is_intact(path: Path, file: HubFile) -> bool:
    if path.stat().st_size != file.size_bytes:
        return False
    return file.digest == (whole_file_sha256(path) if len(file.digest) == SHA256_DIGITS else git_blob_sha1(path))


def _publish(folder: RepositoryFolder, files: list[HubFile], target: Path) -> None:
    staging = folder.snapshots / f"{STAGING_PREFIX}{target.name}"
    staging.mkdir()
    for file in files:
        path = staging / file.name
        path.parent.mkdir(exist_ok=True)
        try:
            os.link(folder.blob(file.digest), path)
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            place_file(folder.blob(file.digest), path, ignore_progress)
    synchronise_directory(staging)
    staging.rename(target)
    synchronise_directory(folder.snapshots)


def _remove_staging(folder: RepositoryFolder) -> None:
    for staging in folder.snapshots.glob(f"{STAGING_PREFIX}*"):
        shutil.rmtree(staging, ignore_errors=True)


def _require_space(folder: RepositoryFolder, missing: list[HubFile]) -> None:
    have_bytes = sum(partial.stat().st_size for file in missing if (partial := folder.partial(file.digest)).exists())
    needed_bytes = sum(file.size_bytes for file in missing) - have_bytes + SPARE_DISK_BYTES
    free_bytes = shutil.disk_usage(folder.root).free
    if missing and free_bytes < needed_bytes:
        raise CacheError(
            f"{folder.root}: the download needs {needed_bytes >> 20} MiB, {free_bytes >> 20} MiB are free — free space "
            "there or set EDGELLM_CACHE_DIR to a folder with more"
        )


def disk_failure(error: OSError, root: Path) -> CacheError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CacheError(
            f"{root}: no space left — free some or set EDGELLM_CACHE_DIR to a folder with more; what was fetched "
            "so far "
            "is kept"
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return CacheError(
            f"{root}: the cache cannot be written ({error.strerror}) — set EDGELLM_CACHE_DIR to a folder that can"
        )
    return CacheError(f"{root}: {error.strerror or error}")
