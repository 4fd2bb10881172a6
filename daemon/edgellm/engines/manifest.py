"""Manifest: ``manifest.json`` of a bundle: its key in clear, and every file with size and SHA-256.

Schema version 1. The reader is strict: unknown or missing fields, wrong types and values out of bounds are a
BundleDamagedError that names file and field; a newer schema is a ManifestVersionError. The golden manifests below
``tests/`` keep every version readable.

    schema_version      1
    key                 {"digest": hex, "inputs": {name: value}}      engine_key.EngineKey
    model_id            the name clients see
    source_ref          "owner/name@revision" of a hub model, or null
    created             UTC, 2026-11-29T18:00:00Z; for people only, no decision depends on it
    platform            recorded values of the fingerprint
    components          names of what was built
    needs_checkpoint    whether a load reads the checkpoint too
    builder             {"name": "native" | "tensorrt", "log": file name or null}
    files               {relative path: {"size_bytes": n, "sha256": hex}}; not manifest.json, nothing below derived/
    derived             {name: {"key": {name: value}, "files": {as above}}}: parts made from the bundle for one kind
                        of CPU or GPU, below derived/NAME/. Reserved; always {} today: derived/weight_panels/ is made
                        by the native runtime at a bundle's first load, and says in its own header what it is of
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from edgellm.config.regular_file import NotRegularFileError, open_regular
from edgellm.engines.engine_key import EngineKey, KeyValue
from edgellm.errors import BundleDamagedError, ManifestVersionError

MANIFEST_FILE = "manifest.json"
DERIVED_FOLDER = "derived"
SCHEMA_VERSION = 1

MAX_MANIFEST_BYTES = 4 << 20
MAX_FILES = 4096
MAX_FILE_BYTES = 1 << 50
MAX_NAME_BYTES = 255
MAX_PATH_PARTS = 8
MAX_TEXT_CHARACTERS = 1024
MAX_INPUTS = 128

_DIGEST = re.compile(r"[0-9a-f]{64}")
_CREATED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_BUILDERS = ("native", "tensorrt")
_FIELDS = (
    "schema_version",
    "key",
    "model_id",
    "source_ref",
    "created",
    "platform",
    "components",
    "needs_checkpoint",
    "builder",
    "files",
    "derived",
)


@dataclass(frozen=True, slots=True)
class FileRecord:
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    key: EngineKey
    model_id: str
    created: str
    builder: str
    components: tuple[str, ...]
    files: Mapping[str, FileRecord]
    source_ref: str | None = None
    platform: Mapping[str, KeyValue] = field(default_factory=dict)
    needs_checkpoint: bool = False
    log_name: str | None = None
    derived: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Of all files of the bundle, without the manifest."""
        return sum(record.size_bytes for record in self.files.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "key": {"digest": self.key.digest, "inputs": dict(self.key.inputs)},
            "model_id": self.model_id,
            "source_ref": self.source_ref,
            "created": self.created,
            "platform": dict(self.platform),
            "components": list(self.components),
            "needs_checkpoint": self.needs_checkpoint,
            "builder": {"name": self.builder, "log": self.log_name},
            "files": {
                name: {"size_bytes": record.size_bytes, "sha256": record.sha256}
                for name, record in sorted(self.files.items())
            },
            "derived": dict(self.derived),
        }

    def to_bytes(self) -> bytes:
        return (json.dumps(self.as_json(), indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """The manifest at ``path``. Raises BundleDamagedError or ManifestVersionError, naming file and field."""
        try:
            with open_regular(path, follow_symlinks=False) as stream:
                content = stream.read(MAX_MANIFEST_BYTES + 1)
        except NotRegularFileError as error:
            raise BundleDamagedError(f"{path}: {error.strerror}: the bundle is damaged") from None
        except OSError as error:
            raise BundleDamagedError(f"{path}: {error.strerror}: not a bundle, or a damaged one") from None
        return cls.parse(content, path)

    @classmethod
    def parse(cls, content: bytes, path: Path) -> Manifest:
        """``path`` is what errors name."""
        if len(content) > MAX_MANIFEST_BYTES:
            raise BundleDamagedError(f"{path}: over {MAX_MANIFEST_BYTES} bytes")
        try:
            values = json.loads(content.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise BundleDamagedError(f"{path}: not JSON ({error})") from None
        return _Reader(path).manifest(values)


def printable_text(text: str) -> str:
    """``text`` as a manifest can hold it: what cannot be printed becomes a question mark."""
    return "".join(character if character.isprintable() else "?" for character in text[:MAX_TEXT_CHARACTERS]) or "?"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name occurs twice")
    return values


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path

    def manifest(self, values: object) -> Manifest:
        if not isinstance(values, dict):
            self._fail("", "not a JSON object")
        version = values.get("schema_version")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            self._fail("schema_version", "is no version number")
        if version > SCHEMA_VERSION:
            raise ManifestVersionError(
                f"{self._path}: schema_version is {version}, this edgellm reads up to {SCHEMA_VERSION}: the bundle "
                "was written by a newer edgellm — upgrade, or remove it with edgellm engine clear and build it again"
            )
        fields = self._exactly("", values, _FIELDS)
        builder = self._exactly("builder", fields["builder"], ("name", "log"))
        files = self._files("files", fields["files"])
        log_name = builder["log"]
        if log_name is not None and (not isinstance(log_name, str) or log_name not in files):
            self._fail("builder.log", "names no file of the bundle")
        created = self._text("created", fields["created"])
        if not _CREATED.fullmatch(created):
            self._fail("created", "is no time such as 2026-11-29T18:00:00Z")
        if not isinstance(fields["needs_checkpoint"], bool):
            self._fail("needs_checkpoint", "is neither true nor false")
        if builder["name"] not in _BUILDERS:
            self._fail("builder.name", f"is not one of {', '.join(_BUILDERS)}")
        source_ref = fields["source_ref"]
        return Manifest(
            key=self._key(fields["key"]),
            model_id=self._text("model_id", fields["model_id"]),
            created=created,
            builder=builder["name"],
            components=self._components(fields["components"]),
            files=files,
            source_ref=None if source_ref is None else self._text("source_ref", source_ref),
            platform=self._scalars("platform", fields["platform"]),
            needs_checkpoint=fields["needs_checkpoint"],
            log_name=log_name,
            derived=self._derived(fields["derived"]),
        )

    def _key(self, value: object) -> EngineKey:
        fields = self._exactly("key", value, ("digest", "inputs"))
        key = EngineKey(self._scalars("key.inputs", fields["inputs"]))
        if key.inputs.get("runtime") not in _BUILDERS:
            self._fail("key.inputs.runtime", f"is not one of {', '.join(_BUILDERS)}")
        if not isinstance(key.inputs.get("checkpoint"), str):
            self._fail("key.inputs.checkpoint", "is no digest")
        if fields["digest"] != key.digest:
            self._fail("key.digest", "is not the digest of key.inputs")
        return key

    def _files(self, name: str, value: object) -> dict[str, FileRecord]:
        if not isinstance(value, dict) or not value or len(value) > MAX_FILES:
            self._fail(name, f"is not an object of 1 to {MAX_FILES} files")
        return {path: self._file(f"{name}.{path[:80]}", path, record) for path, record in value.items()}

    def _file(self, name: str, path: str, value: object) -> FileRecord:
        if not is_bundle_path(path) or path == MANIFEST_FILE:
            self._fail(name, "is no path inside a bundle")
        record = self._exactly(name, value, ("size_bytes", "sha256"))
        size_bytes, sha256 = record["size_bytes"], record["sha256"]
        if isinstance(size_bytes, bool) or not isinstance(size_bytes, int) or not 0 <= size_bytes <= MAX_FILE_BYTES:
            self._fail(f"{name}.size_bytes", "is no size")
        if not isinstance(sha256, str) or not _DIGEST.fullmatch(sha256):
            self._fail(f"{name}.sha256", "is no SHA-256 in lower case")
        return FileRecord(size_bytes, sha256)

    def _derived(self, value: object) -> dict[str, Any]:
        if not isinstance(value, dict) or len(value) > MAX_INPUTS:
            self._fail("derived", "is not an object")
        parts: dict[str, Any] = {}
        for name, part in value.items():
            if not _NAME.fullmatch(name):
                self._fail("derived", "has a part whose name is none")
            fields = self._exactly(f"derived.{name}", part, ("key", "files"))
            self._scalars(f"derived.{name}.key", fields["key"])
            self._files(f"derived.{name}.files", fields["files"])
            parts[name] = part
        return parts

    def _components(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not value or len(value) > MAX_INPUTS:
            self._fail("components", "is not a list of names")
        for name in value:
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                self._fail("components", "holds something that is no name")
        if len(set(value)) != len(value):
            self._fail("components", "names one twice")
        return tuple(value)

    def _scalars(self, name: str, value: object) -> dict[str, KeyValue]:
        if not isinstance(value, dict) or len(value) > MAX_INPUTS:
            self._fail(name, f"is not an object of up to {MAX_INPUTS} values")
        for key, item in value.items():
            if not _NAME.fullmatch(key):
                self._fail(name, "has a key that is no name")
            if item is not None and not isinstance(item, str | int):
                self._fail(f"{name}.{key}", "is neither a text, a whole number, true, false nor null")
            if isinstance(item, str):
                self._text(f"{name}.{key}", item)
        return value

    def _text(self, name: str, value: object) -> str:
        # A lone surrogate, which JSON can spell and UTF-8 cannot, is not printable.
        if not isinstance(value, str) or not value or len(value) > MAX_TEXT_CHARACTERS or not value.isprintable():
            self._fail(name, f"is not a printable text of up to {MAX_TEXT_CHARACTERS} characters")
        return value

    def _exactly(self, name: str, value: object, keys: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._fail(name, "is not an object")
        prefix = f"{name}." if name else ""
        for key in keys:
            if key not in value:
                self._fail(prefix + key, "is missing")
        for key in value:
            if key not in keys:
                self._fail(prefix + key[:80], "is unknown in this schema version")
        return value

    def _fail(self, name: str, reason: str) -> NoReturn:
        raise BundleDamagedError(f"{self._path}: {name} {reason}" if name else f"{self._path}: {reason}")


def is_bundle_path(path: str) -> bool:
    """Whether ``path`` is relative, normal and stays inside the folder it is joined to, on every file system."""
    parts = path.split("/")
    return (
        0 < len(parts) <= MAX_PATH_PARTS
        and path.isprintable()
        and "\\" not in path
        and all(part not in ("", ".", "..") and len(part.encode()) <= MAX_NAME_BYTES for part in parts)
    )
