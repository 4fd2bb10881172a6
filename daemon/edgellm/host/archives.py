"""What archives of images and engines are, told without podman or other packages: whoever packs one for a board hears
of a wrong one before the board does."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

from edgellm.errors import ReleaseSourceError
from edgellm.host.commands import attempt
from edgellm.host.setup_environment import environment, python_with

VERSION_LABEL = "org.opencontainers.image.version"
JSON_BYTES_MAX = 4 << 20
ZSTD_BEGINNING = b"\x28\xb5\x2f\xfd"
# With what an engine's archive begins, and how much of it is looked at.
ENGINE_MEMBERS = ("manifest.json", "archive.json")
ENGINE_HEAD_BYTES = 8 << 20
# Names of architectures in images, and as uname -m has them.
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True)
class ImageArchive:
    """``architecture`` as uname -m has it. ``digest`` is of its configuration, the id that podman gives the image."""

    version: str
    architecture: str
    digest: str

    @classmethod
    def read(cls, path: Path) -> ImageArchive:
        """Raises ReleaseSourceError for what is no archive of one image of edgellm."""
        try:
            with path.open("rb") as stream:
                beginning = stream.read(len(ZSTD_BEGINNING))
            if beginning == ZSTD_BEGINNING:
                raise ReleaseSourceError(f"{path} is compressed with zstd — give it as podman save wrote it")
            with tarfile.open(path) as archive:
                content = _configuration(path, archive)
            found = json.loads(content)
            version = (found.get("config", {}).get("Labels") or {}).get(VERSION_LABEL)
        except OSError as error:
            raise ReleaseSourceError(f"{path}: {error.strerror or error}") from None
        except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise ReleaseSourceError(f"{path} is no container image's archive — make one with podman save") from None
        if not version:
            raise ReleaseSourceError(f"{path} holds no image of edgellm: it lacks the label {VERSION_LABEL}")
        architecture = str(found.get("architecture", "unknown"))
        return cls(str(version), _MACHINES.get(architecture, architecture), hashlib.sha256(content).hexdigest())


def require_engine_archive(path: Path) -> None:
    """By its first members where an environment can unpack it, else by its first bytes; whoever imports it checks all
    of them. Raises ReleaseSourceError."""
    try:
        with path.open("rb") as stream:
            is_compressed = stream.read(len(ZSTD_BEGINNING)) == ZSTD_BEGINNING
    except OSError as error:
        raise ReleaseSourceError(f"{path}: {error.strerror}") from None
    python = python_with("zstandard") if is_compressed else None
    if is_compressed and python is None:
        return
    if python is None or not _begins_as_an_engine(path, python):
        raise ReleaseSourceError(f"{path} is no engine's archive — make one with edgellm engine export")


def _begins_as_an_engine(path: Path, python: str) -> bool:
    unpack = (
        "import sys, zstandard\n"
        "with open(sys.argv[1], 'rb') as packed, zstandard.ZstdDecompressor().stream_reader(packed) as stream:\n"
        f"    sys.stdout.write(stream.read({ENGINE_HEAD_BYTES}).hex())\n"
    )
    said = attempt([python, "-c", unpack, str(path)], environment=environment())
    if said.code != 0:
        return False
    names: list[str] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(bytes.fromhex(said.output)), mode="r|") as archive:
            for member in archive:
                names.append(member.name)
                if len(names) == len(ENGINE_MEMBERS):
                    break
    except tarfile.TarError:
        return False
    return tuple(names) == ENGINE_MEMBERS


def _configuration(path: Path, archive: tarfile.TarFile) -> bytes:
    """Of the one image, in podman's and docker's form or in that of the Open Container Initiative."""
    names = set(archive.getnames())
    if "manifest.json" in names:
        images = json.loads(_content(archive, "manifest.json"))
        _require_one(path, len(images))
        return _content(archive, images[0]["Config"])
    images = json.loads(_content(archive, "index.json"))["manifests"]
    _require_one(path, len(images))
    manifest = json.loads(_content(archive, _blob(images[0]["digest"])))
    return _content(archive, _blob(manifest["config"]["digest"]))


def _require_one(path: Path, count: int) -> None:
    if count != 1:
        raise ReleaseSourceError(f"{path} holds {count} images, not one — save that of edgellm alone")


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    stream = archive.extractfile(name)
    if stream is None:
        raise ValueError(name)
    return stream.read(JSON_BYTES_MAX)
