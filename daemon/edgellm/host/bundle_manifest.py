"""The manifest of an offline bundle: every file with size and SHA-256, and what the bundle is for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from edgellm.errors import ReleaseSourceError, ReleaseUntrustedError
from edgellm.host.versions import Version

MANIFEST = "manifest.json"
MANIFEST_SIGNATURE = "manifest.json.sig"
FORMAT_NAME = "edgellm-bundle"
FORMAT = 1
MANIFEST_BYTES_MAX = 16 << 20
CHUNK_BYTES = 1 << 20

OnHashed = Callable[[int], None]  # bytes


@dataclass(frozen=True, slots=True)
class BundleFile:
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BundleManifest:
    """``floor`` is the oldest version that may run once this one does."""

    version: str
    architecture: str
    floor: str | None
    files: Mapping[str, BundleFile]

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT_NAME,
            "format_version": FORMAT,
            "version": self.version,
            "architecture": self.architecture,
            "version_floor": self.floor,
            "files": {
                name: {"size_bytes": file.size_bytes, "sha256": file.sha256}
                for name, file in sorted(self.files.items())
            },
        }

    def below(self, folder: str) -> list[str]:
        return [name for name in self.files if name.startswith(f"{folder}/")]


def is_bundle(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def read_manifest(folder: Path) -> BundleManifest:
    """Raises ReleaseSourceError that names the file."""
    path = folder / MANIFEST
    try:
        with path.open("rb") as stream:
            value = json.loads(stream.read(MANIFEST_BYTES_MAX))
        if value["format"] != FORMAT_NAME or value["format_version"] != FORMAT:
            raise ReleaseSourceError(f"{path} is of a format that this edgellm does not know — upgrade edgellm first")
        files = {}
        for name, entry in value["files"].items():
            parts = PurePosixPath(name).parts
            if name.startswith("/") or ".." in parts or str(PurePosixPath(name)) != name:
                raise ReleaseSourceError(f"{path} names {name!r}, which is no file of the bundle")
            files[name] = BundleFile(int(entry["size_bytes"]), str(entry["sha256"]))
        floor = value["version_floor"]
        Version(value["version"])
        if floor is not None:
            Version(floor)
        return BundleManifest(str(value["version"]), str(value["architecture"]), floor, files)
    except OSError as error:
        raise ReleaseSourceError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ReleaseSourceError(f"{path} is damaged — copy the bundle anew") from None


def verify_files(folder: Path, manifest: BundleManifest, on_hashed: OnHashed = lambda size_bytes: None) -> None:
    """Every file is there with its bytes, and no other is. Raises ReleaseUntrustedError that names the first wrong."""
    present = {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()
    } - {MANIFEST, MANIFEST_SIGNATURE}
    for name in sorted(present - set(manifest.files)):
        raise ReleaseUntrustedError(f"{folder / name} is not in the bundle's manifest — remove it, or copy it anew")
    for name, file in sorted(manifest.files.items()):
        path = folder / name
        if name not in present:
            raise ReleaseUntrustedError(f"{path} is missing — copy the bundle anew")
        if path.is_symlink() or not path.is_file():
            raise ReleaseUntrustedError(f"{path} is no ordinary file — copy the bundle anew")
        size_bytes = path.stat().st_size
        if size_bytes != file.size_bytes:
            raise ReleaseUntrustedError(
                f"{path} has {size_bytes} bytes, not {file.size_bytes} as its manifest says — copy the bundle anew"
            )
        if (found := sha256_of(path, on_hashed)) != file.sha256:
            raise ReleaseUntrustedError(
                f"{path} was changed: its SHA-256 is {found}, not {file.sha256} — copy the bundle anew"
            )


def sha256_of(path: Path, on_hashed: OnHashed = lambda size_bytes: None) -> str:
    """Raises ReleaseSourceError."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                digest.update(chunk)
                on_hashed(len(chunk))
    except OSError as error:
        raise ReleaseSourceError(f"{path}: {error.strerror}") from None
    return digest.hexdigest()
