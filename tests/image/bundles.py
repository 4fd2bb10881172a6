"""Offline bundles as a publisher makes them, and copies of them that somebody changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from edgellm.host.bundle_maker import manifest_text
from edgellm.host.bundle_manifest import MANIFEST, read_manifest
from edgellm.host.signature import sign

CHECKOUT = Path(__file__).resolve().parents[2]
STICK = "/media/stick"  # where devices see the folder of bundles
CONFIGURATION = """cache_dir = "/var/lib/edgellm"

[engines]
build_on_start = false
"""


class Publisher:
    """``folder`` is what devices see as ``STICK``."""

    def __init__(self, folder: Path, key: Path) -> None:
        self.folder = folder
        self._key = key
        folder.mkdir()
        shutil.copy(f"{key}.pub", folder / "publisher.pub")
        (folder / "edgellm.toml").write_text(CONFIGURATION)

    def bundle(self, name: str, *options: str | Path) -> str:
        """What `image/bundle` said."""
        made = subprocess.run(
            [
                *(sys.executable, str(CHECKOUT / "image/bundle"), str(self.folder / name)),
                *("--sign", str(self._key), *map(str, options)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        return made.stdout

    def tampered(self, name: str, part: str) -> str:
        """A copy with one changed bit in the first file of that part; which file, as the bundle has it."""
        source, copy = self.folder / name, self.folder / "tampered"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy, copy_function=os.link)
        whole = source / part
        file = whole if whole.is_file() else sorted(path for path in whole.rglob("*") if path.is_file())[0]
        changed = copy / file.relative_to(source)
        content = bytearray(file.read_bytes())
        content[-2] ^= 1
        changed.unlink()  # a link to the whole one's
        changed.write_bytes(content)
        return file.relative_to(source).as_posix()

    def for_architecture(self, name: str, architecture: str) -> str:
        """A copy that says so, signed. Its name below the stick."""
        copy = self.folder / f"{name}-{architecture}"
        shutil.copytree(self.folder / name, copy, copy_function=os.link)
        (copy / MANIFEST).unlink()  # a link to the whole one's
        manifest = replace(read_manifest(self.folder / name), architecture=architecture)
        (copy / MANIFEST).write_text(manifest_text(manifest))
        sign(copy / MANIFEST, self._key)
        return copy.name


def exported_engine(model: str, folder: Path) -> Path:
    """The archive of the engine that this checkout builds of the model."""
    archive = folder / f"{model}.tar.zst"
    edgellm = [sys.executable, "-m", "edgellm", "engine"]
    # The model is where it was fetched to; the store is its own.
    cache = folder / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    for words in (("build", model), ("export", model, str(archive))):
        done = subprocess.run(
            [*edgellm, *words, "--runtime", "native", "--cache-dir", str(cache)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return archive
