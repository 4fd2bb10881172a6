"""The container image of this checkout on a Debian that this machine made: built once, for all suites and runs."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.util
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

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
FOLDER = CACHE_FOLDER / "images"
CURRENT = "localhost/edgellm:current"  # what units and the command on the host ask for
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


class BuiltImage:
    """``name`` is the image's, in a store that several runs read at once: other sources have another."""

    def __init__(self, store: Podman) -> None:
        self._store = store
        self.name = f"localhost/edgellm:sources-{digest_of_sources()}"

    @property
    def images(self) -> Path:
        """For a ``Podman`` of one's own."""
        return self._store.images

    def make(self) -> None:
        if self._store.run("image", "exists", self.name, check=False).returncode != 0:
            if self._store.run("image", "exists", BASE, check=False).returncode != 0:
                make_base(self._store)
            # The layers stay: what did not change is not built again.
            build(self._store, f"--tag={self.name}", native=compiled_module())

    def archive(self) -> Path:
        """As ``CURRENT``, for ``podman load`` on a device."""
        path = FOLDER / f"{self.name.rpartition('-')[2]}.tar"
        with _locked("lock"):
            if not path.exists():
                unfinished = path.with_suffix(".unfinished")
                unfinished.unlink(missing_ok=True)
                self._store.run("tag", self.name, CURRENT)
                self._store.run("save", "--quiet", f"--output={unfinished}", CURRENT)
                unfinished.rename(path)
        return path

    def clean_up(self) -> None:
        """Images and archives of other sources go, and what podman mounted."""
        listed = self._store.run("images", "--format={{.Repository}}:{{.Tag}}").stdout.split()
        for other in [name for name in listed if ":sources-" in name and name != self.name]:
            self._store.run("rmi", other)
        for archive in FOLDER.glob("*.tar"):
            if archive.stem != self.name.rpartition("-")[2]:
                archive.unlink()
        self._store.unmount()


@contextmanager
def built_image() -> Iterator[BuiltImage]:
    """One process builds it, others wait. The last one that uses any of them cleans up."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with _locked("users", fcntl.LOCK_SH) as users:
        with _locked("lock"):
            image = BuiltImage(Podman(FOLDER / "store"))
            image.make()
        try:
            yield image
        finally:
            with suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                image.clean_up()


@contextmanager
def _locked(name: str, how: int = fcntl.LOCK_EX) -> Iterator[IO[str]]:
    with (FOLDER / name).open("w") as lock:
        fcntl.flock(lock, how)
        yield lock


def make_base(podman: Podman) -> None:
    root = podman.folder / "base"
    debootstrap(root, BASE_PACKAGES, mirror_of_this_machine(), SUITE)
    tar = podman.folder / "base.tar"
    check_output(["tar", "-C", str(root), "--one-file-system", "-cf", str(tar), "."])
    podman.run("import", "--quiet", str(tar), BASE)
    check_output(["rm", "-rf", "--one-file-system", str(root), str(tar)])


def build(podman: Podman, *options: str, native: Path | None, engines: Path | None = None) -> str:
    """As a user would, with settings for pip that must not stay. What the builder says."""
    certificates = podman.folder / "certificates"
    certificates.write_text(f"{CERTIFICATES.read_text()}\n# {AUTHORITY_CANARY}\n")
    given = {"PIP_CERT": str(certificates), "PIP_TRUSTED_HOST": INDEX_CANARY}
    optional = [f"--{name}={path}" for name, path in (("native", native), ("engines", engines)) if path is not None]
    command = [str(CHECKOUT / "image/build-container"), f"--base={BASE}", *optional, "--", *options]
    return podman.call(*command, environment=given, deadline_seconds=BUILD_DEADLINE_SECONDS).stdout


def compiled_module() -> Path | None:
    """That of this environment, where it is for the base's Python: same version, and a machine of the same release."""
    found = importlib.util.find_spec("edgellm._native")
    release = platform.freedesktop_os_release()
    is_same = sys.version_info[:2] == PYTHON_OF_SUITE and release.get("VERSION_CODENAME") == SUITE
    return Path(str(found.origin)) if found is not None and is_same else None


@functools.cache
def digest_of_sources() -> str:
    module = compiled_module()
    digest = hashlib.sha256(b"" if module is None else hashlib.sha256(module.read_bytes()).digest())
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
