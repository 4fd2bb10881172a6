"""The container image of this checkout on a Debian that this machine made: built once, and kept as an archive."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.lab.podman import Podman
from tests.lab.rootfs import (
    CACHE_FOLDER,
    CERTIFICATES,
    PYTHON_OF_SUITE,
    SUITE,
    check_output,
    debootstrap,
    mirror_of_this_machine,
)

CHECKOUT = Path(__file__).resolve().parents[2]
IMAGE = "localhost/edgellm:current"
BASE = "localhost/edgellm-base:current"
BASE_PACKAGES = ("python3", "ca-certificates")
BUILD_DEADLINE_SECONDS = 3600.0
# What the build is given and must not keep: names that stand for this machine's index and authority.
INDEX_CANARY = "index-of-the-builder.invalid"
AUTHORITY_CANARY = "authority-of-the-builder"
SOURCES = (
    *("Containerfile", ".containerignore", "pyproject.toml", "README.md", "LICENSE", ".ci/requirements.lock"),
    *("image/build-container", "image/sbom.py", "daemon/edgellm", "native", "systemd"),
)


def built_image() -> Path:
    """A docker archive of ``IMAGE`` and ``BASE``. One process makes it, others wait; those of other sources go."""
    folder = CACHE_FOLDER / "images"
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{_digest_of_sources()}.tar"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            podman = Podman(folder / "store")  # its layers stay: what did not change is not built again
            try:
                if podman.run("image", "exists", BASE, check=False).returncode != 0:
                    make_base(podman)
                build(podman)
                unfinished = archive.with_suffix(".unfinished")
                unfinished.unlink(missing_ok=True)
                podman.run("save", "--quiet", "--multi-image-archive", f"--output={unfinished}", IMAGE, BASE)
            finally:
                podman.unmount()
            for old in folder.glob("*.tar"):
                old.unlink()
            unfinished.rename(archive)
    return archive


def make_base(podman: Podman) -> None:
    root = podman.folder / "base"
    debootstrap(root, BASE_PACKAGES, mirror_of_this_machine(), SUITE)
    tar = podman.folder / "base.tar"
    check_output(["tar", "-C", str(root), "--one-file-system", "-cf", str(tar), "."])
    podman.run("import", "--quiet", str(tar), BASE)
    check_output(["rm", "-rf", "--one-file-system", str(root), str(tar)])


def build(podman: Podman, *options: str) -> str:
    """As a user would, with settings for pip that must not stay. What the builder says."""
    certificates = podman.folder / "certificates"
    certificates.write_text(f"{CERTIFICATES.read_text()}\n# {AUTHORITY_CANARY}\n")
    given = {"PIP_CERT": str(certificates), "PIP_TRUSTED_HOST": INDEX_CANARY}
    native = compiled_module()
    given_native = [f"--native={native}"] if native is not None else []
    command = [str(CHECKOUT / "image/build-container"), f"--base={BASE}", *given_native, *options]
    return podman.call(*command, environment=given, deadline_seconds=BUILD_DEADLINE_SECONDS).stdout


def compiled_module() -> Path | None:
    """That of this environment, where it is for the base's Python: same version, and a machine of the same release."""
    found = importlib.util.find_spec("edgellm._native")
    release = platform.freedesktop_os_release()
    is_same = sys.version_info[:2] == PYTHON_OF_SUITE and release.get("VERSION_CODENAME") == SUITE
    return Path(str(found.origin)) if found is not None and is_same else None


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for path in _files():
        digest.update(f"{path.relative_to(CHECKOUT)}\0{path.stat().st_mode & 0o111}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _files() -> Iterator[Path]:
    for name in SOURCES:
        path = CHECKOUT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix not in (".so", ".pyc"):
                yield file
