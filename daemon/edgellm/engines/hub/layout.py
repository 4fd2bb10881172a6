"""Where fetched repositories lie below the models folder.

``hub/ORG--NAME/blobs/DIGEST`` is a verified file and ``DIGEST.partial`` one that is being fetched;
``snapshots/COMMIT`` holds a whole model under the names of its repository, as further links to its blobs, and is
there only when it is complete.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

HUB_FOLDER = "hub"
BLOBS_FOLDER = "blobs"
SNAPSHOTS_FOLDER = "snapshots"
PARTIAL_SUFFIX = ".partial"
STAGING_PREFIX = ".staging-"


@dataclass(frozen=True, slots=True)
class RepositoryFolder:
    """Paths of one repository; nothing here touches the disk."""

    root: Path

    @classmethod
    def of(cls, models_dir: Path, repository: str) -> RepositoryFolder:
        return cls(models_dir / HUB_FOLDER / folder_name(repository))

    @property
    def lock(self) -> Path:
        return self.root / ".lock"

    @property
    def blobs(self) -> Path:
        return self.root / BLOBS_FOLDER

    @property
    def snapshots(self) -> Path:
        return self.root / SNAPSHOTS_FOLDER

    def blob(self, digest: str) -> Path:
        return self.blobs / digest

    def partial(self, digest: str) -> Path:
        return self.blobs / f"{digest}{PARTIAL_SUFFIX}"

    def snapshot(self, commit: str, gguf_name: str = "") -> Path:
        """A checkpoint's folder; each GGUF file has one of its own, as a model of its own."""
        if not gguf_name:
            return self.snapshots / commit
        return self.snapshots / f"{commit}-{hashlib.sha256(gguf_name.encode()).hexdigest()[:8]}"


def folder_name(repository: str) -> str:
    """``ORG/NAME`` as one name; ids have no ``--`` of their own."""
    return repository.replace("/", "--")
