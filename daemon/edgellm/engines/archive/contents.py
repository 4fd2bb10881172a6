"""``archive.json``: what an archive holds beside its manifest, by size and SHA-256.

schema_version      1
manifest_sha256     of manifest.json, which lists the bundle's files
checkpoints         {"checkpoint" | "draft": {"digest": hex, "files": {relative path: {"size_bytes", "sha256"}}}}
references          what ids of a hub meant where the archive was made (``references.py``)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from edgellm.engines.manifest import MAX_FILE_BYTES, MAX_FILES, FileRecord, is_bundle_path
from edgellm.engines.references import Reference, parse_reference
from edgellm.errors import BundleDamagedError, ManifestVersionError

SCHEMA_VERSION = 1
MAX_CONTENTS_BYTES = 4 << 20
MAX_REFERENCES = 256
MANIFEST_MEMBER = "manifest.json"
CONTENTS_MEMBER = "archive.json"
SIGNATURE_MEMBER = "signature.json"
BUNDLE_FOLDER = "bundle"
CHECKPOINT_ROLES = ("checkpoint", "draft")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FIELDS = ("schema_version", "manifest_sha256", "checkpoints", "references")


@dataclass(frozen=True, slots=True)
class CheckpointContents:
    """``digest`` is the checkpoint digest that the engine's key has."""

    digest: str
    files: Mapping[str, FileRecord]

    @property
    def size_bytes(self) -> int:
        return sum(record.size_bytes for record in self.files.values())


@dataclass(frozen=True, slots=True)
class ArchiveContents:
    """``checkpoints`` by role, in the order in which they lie in the archive."""

    manifest_sha256: str
    checkpoints: Mapping[str, CheckpointContents] = field(default_factory=dict)
    references: tuple[Reference, ...] = ()

    def to_bytes(self) -> bytes:
        values = {
            "schema_version": SCHEMA_VERSION,
            "manifest_sha256": self.manifest_sha256,
            "checkpoints": {
                role: {
                    "digest": checkpoint.digest,
                    "files": {
                        name: {"size_bytes": record.size_bytes, "sha256": record.sha256}
                        for name, record in sorted(checkpoint.files.items())
                    },
                }
                for role, checkpoint in self.checkpoints.items()
            },
            "references": [json.loads(reference.to_json()) for reference in self.references],
        }
        return (json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def parse(cls, content: bytes, path: Path) -> ArchiveContents:
        """``path`` is what errors name. Raises BundleDamagedError, ManifestVersionError."""
        try:
            values = json.loads(content.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise BundleDamagedError(f"{path}: not JSON ({error})") from None
        return _Reader(path).contents(values)


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path

    def contents(self, values: object) -> ArchiveContents:
        if not isinstance(values, dict):
            self._fail("not a JSON object")
        version = values.get("schema_version")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            self._fail("schema_version is no version number")
        if version > SCHEMA_VERSION:
            raise ManifestVersionError(
                f"{self._path}: schema_version is {version}, this edgellm reads up to {SCHEMA_VERSION}: the archive "
                "was made by a newer edgellm — upgrade, or build the engine here"
            )
        self._exactly("", values, _FIELDS)
        checkpoints = values["checkpoints"]
        if not isinstance(checkpoints, dict) or not set(checkpoints) <= set(CHECKPOINT_ROLES):
            self._fail(f"checkpoints is not an object with {' and '.join(CHECKPOINT_ROLES)}")
        references = values["references"]
        if not isinstance(references, list) or len(references) > MAX_REFERENCES:
            self._fail(f"references is not a list of up to {MAX_REFERENCES}")
        return ArchiveContents(
            manifest_sha256=self._digest("manifest_sha256", values["manifest_sha256"]),
            checkpoints={
                role: self._checkpoint(f"checkpoints.{role}", checkpoints[role])
                for role in CHECKPOINT_ROLES
                if role in checkpoints
            },
            references=tuple(self._reference(reference) for reference in references),
        )

    def _checkpoint(self, name: str, value: object) -> CheckpointContents:
        fields = self._exactly(name, value, ("digest", "files"))
        files = fields["files"]
        if not isinstance(files, dict) or not files or len(files) > MAX_FILES:
            self._fail(f"{name}.files is not an object of 1 to {MAX_FILES} files")
        records = {}
        for path, value in files.items():
            label = f"{name}.files.{path[:80]}"
            if not is_bundle_path(path):
                self._fail(f"{label} is no path inside a checkpoint")
            record = self._exactly(label, value, ("size_bytes", "sha256"))
            size_bytes = record["size_bytes"]
            if isinstance(size_bytes, bool) or not isinstance(size_bytes, int) or not 0 <= size_bytes <= MAX_FILE_BYTES:
                self._fail(f"{label}.size_bytes is no size")
            records[path] = FileRecord(size_bytes, self._digest(f"{label}.sha256", record["sha256"]))
        return CheckpointContents(self._digest(f"{name}.digest", fields["digest"]), records)

    def _reference(self, value: object) -> Reference:
        if not isinstance(value, dict):
            self._fail("references holds something that is no object")
        try:
            return parse_reference(self._path, value)
        except BundleDamagedError:
            self._fail("references holds one that is not valid")

    def _digest(self, name: str, value: object) -> str:
        if not isinstance(value, str) or not _DIGEST.fullmatch(value):
            self._fail(f"{name} is no SHA-256 in lower case")
        return value

    def _exactly(self, name: str, value: object, keys: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._fail(f"{name} is not an object")
        prefix = f"{name}." if name else ""
        for key in keys:
            if key not in value:
                self._fail(f"{prefix}{key} is missing")
        for key in value:
            if key not in keys:
                self._fail(f"{prefix}{key[:80]} is unknown in this schema version")
        return value

    def _fail(self, reason: str) -> NoReturn:
        raise BundleDamagedError(f"{self._path}: {reason}")
