"""Source: what `edgellm upgrade` is given, checked before anything of it is used."""

from __future__ import annotations

import hashlib
import platform
import re
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgellm.errors import ReleaseSourceError, ReleaseUntrustedError
from edgellm.host.bundle_manifest import (
    MANIFEST,
    MANIFEST_SIGNATURE,
    is_bundle,
    read_manifest,
    sha256_of,
    verify_files,
)
from edgellm.host.paths import HostPaths
from edgellm.host.release import Kind
from edgellm.host.signature import SIGNATURE_SUFFIX, keys_in, trusted_keys, verify_signature

IMAGE_ARCHIVE = "image.tar"
WHEELS = "wheels"
ENGINES = "engines"
MODELS = "models"
_PINNED_NAME = re.compile(r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}")
_WHEEL = re.compile(r"edgellm-(?P<version>[^-]+)-[^/]*\.whl")
_EXPECTED = (
    "give a container image's archive or NAME@sha256:DIGEST, a wheel of edgellm or a folder of wheels, or a bundle"
)


@dataclass(frozen=True, slots=True)
class Source:
    """Exactly one of ``image``, ``pinned_name`` and ``wheels`` is set. ``extras`` is the folder of a bundle.

    ``publisher_key`` is a file of public keys that this machine is to trust once it has taken the source.
    """

    kind: Kind
    image: Path | None = None
    pinned_name: str | None = None
    wheels: Sequence[Path] = field(default=())
    extras: Path | None = None
    floor: str | None = None
    publisher_key: Path | None = None

    @property
    def wheel(self) -> Path:
        """Of edgellm itself."""
        return next(one for one in self.wheels if _WHEEL.fullmatch(one.name))

    @property
    def size_bytes(self) -> int:
        files = [self.image] if self.image else self.wheels
        return sum(file.stat().st_size for file in files)


def open_source(
    text: str, kind: Kind, paths: HostPaths, *, sha256: str | None = None, publisher_key: Path | None = None
) -> Source:
    """Raises ReleaseSourceError for what is no release of this kind, ReleaseUntrustedError for what nobody vouches for.

    ``sha256`` is what the caller vouches for: of the one file. ``publisher_key`` counts beside the trusted keys.
    """

    def keys() -> Sequence[str]:
        return [*trusted_keys(paths), *(() if publisher_key is None else keys_in(publisher_key))]

    return replace(_opened(text, kind, keys, sha256), publisher_key=publisher_key)


def _opened(text: str, kind: Kind, keys: Callable[[], Sequence[str]], sha256: str | None) -> Source:
    if _PINNED_NAME.fullmatch(text):
        return _of_kind(Source(Kind.CONTAINER, pinned_name=text), kind)
    path = Path(text).absolute()
    if path.is_dir():
        if sha256 is not None:
            raise ReleaseSourceError(f"--sha256 is of one file, and {text} is a folder — leave it out")
        return _of_kind(_open_folder(path, kind, keys()), kind)
    if not path.is_file():
        raise ReleaseSourceError(f"{text} is not there — {_EXPECTED}")
    if path.suffix == ".whl":
        if not _WHEEL.fullmatch(path.name):
            raise ReleaseSourceError(f"{path.name} is no wheel of edgellm — {_EXPECTED}")
        source = Source(Kind.VENV, wheels=[path])
    else:
        if _is_packed_bundle(path):
            raise ReleaseSourceError(f"{text} is a bundle in one file — unpack it (tar -xf {text}) and give its folder")
        source = Source(Kind.CONTAINER, image=path)
    _of_kind(source, kind)
    if sha256 is not None:
        if (found := sha256_of(path)) != sha256.lower():
            raise ReleaseUntrustedError(f"{path} has the SHA-256 {found}, not {sha256.lower()} — get it anew")
    elif trusted := keys():
        verify_signature(path, path.with_name(path.name + SIGNATURE_SUFFIX), trusted)
    return source


def _is_packed_bundle(path: Path) -> bool:
    try:
        with tarfile.open(path, "r:") as archive:
            return any(re.fullmatch(rf"[^/]+/{re.escape(MANIFEST_SIGNATURE)}", name) for name in archive.getnames())
    except (OSError, tarfile.TarError):
        return False


def _open_folder(folder: Path, kind: Kind, keys: Sequence[str]) -> Source:
    if not is_bundle(folder):
        if keys:
            raise ReleaseUntrustedError(
                f"{folder} has no {MANIFEST}, and this machine trusts only what is signed — make a bundle: image/bundle"
            )
        wheels = sorted(folder.glob("*.whl"))
        _require_one_edgellm(folder, wheels)
        return Source(Kind.VENV, wheels=wheels)
    if keys:
        verify_signature(folder / MANIFEST, folder / MANIFEST_SIGNATURE, keys)
    manifest = read_manifest(folder)
    verify_files(folder, manifest)
    if manifest.architecture not in ("any", platform.machine()):
        raise ReleaseSourceError(f"{folder} is for {manifest.architecture}, and this machine is {platform.machine()}")
    if kind is Kind.CONTAINER:
        if IMAGE_ARCHIVE not in manifest.files:
            raise ReleaseSourceError(f"{folder} has no {IMAGE_ARCHIVE}, and this machine runs edgellm as a container")
        return Source(kind, image=folder / IMAGE_ARCHIVE, extras=folder, floor=manifest.floor)
    wheels = sorted((folder / WHEELS).glob("*.whl"))
    _require_one_edgellm(folder / WHEELS, wheels)
    return Source(kind, wheels=wheels, extras=folder, floor=manifest.floor)


def _require_one_edgellm(folder: Path, wheels: Sequence[Path]) -> None:
    found = [one.name for one in wheels if _WHEEL.fullmatch(one.name)]
    if len(found) != 1:
        has = " and ".join(found) if found else "none"
        raise ReleaseSourceError(f"{folder}: a folder of wheels needs exactly one of edgellm, and has {has}")


def _of_kind(source: Source, kind: Kind) -> Source:
    if source.kind is not kind:
        wanted = "a wheel or a folder of wheels" if kind is Kind.VENV else "an image's archive or NAME@sha256:DIGEST"
        raise ReleaseSourceError(f"edgellm is installed as a {kind.value} on this machine — give {wanted}, or a bundle")
    return source


def wheel_version(wheel: Path) -> str:
    """As the wheel's own name has it."""
    found = _WHEEL.fullmatch(wheel.name)
    if found is None:
        raise ReleaseSourceError(f"{wheel.name} is no wheel of edgellm")
    return found["version"]


def wheel_platform(wheel: Path) -> str:
    """The last part of its name: any, linux_x86_64, or several with dots in between."""
    return wheel.stem.rpartition("-")[2]


def is_wheel_for(wheel: Path, architecture: str) -> bool:
    """``architecture`` as uname -m has it; any wants wheels for all."""
    tags = wheel_platform(wheel).split(".")
    return "any" in tags or any(tag.endswith(f"_{architecture}") for tag in tags)


def digest_of_wheels(wheels: Sequence[Path]) -> str:
    """The same for the same files, wherever they lie."""
    digest = hashlib.sha256()
    for wheel in sorted(wheels, key=lambda one: one.name):
        digest.update(f"{wheel.name} {sha256_of(wheel)}\n".encode())
    return digest.hexdigest()


def installed_bytes(wheels: Sequence[Path]) -> int:
    """What they take once unpacked. Raises ReleaseSourceError for one that is damaged."""
    total = 0
    for wheel in wheels:
        try:
            with zipfile.ZipFile(wheel) as archive:
                total += sum(entry.file_size for entry in archive.infolist())
        except (OSError, zipfile.BadZipFile):
            raise ReleaseSourceError(f"{wheel} is damaged — get it anew") from None
    return total
