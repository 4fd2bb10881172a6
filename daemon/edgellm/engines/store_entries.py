"""Entries: what lies in a root of the store. Reading them takes no lock and changes nothing.

Names in a root, where KEY is the short digest of an engine key:

    MODEL-KEY/              a bundle; MODEL is for people, KEY alone decides
    .KEY.lock               held by whoever builds, imports or removes that bundle
    .KEY.pin                the bundle is never evicted
    .staging-KEY-RANDOM/    a bundle in the making, or one being removed; rubbish without a holder of its lock
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edgellm.engines.engine_key import EngineKey
from edgellm.engines.file_system import tree_bytes, unreadable
from edgellm.engines.manifest import DERIVED_FOLDER, MANIFEST_FILE, Manifest
from edgellm.errors import BundleDamagedError, ManifestVersionError

MAX_MODEL_CHARACTERS = 80
STAGING_PREFIX = ".staging-"
LOCK_SUFFIX = ".lock"
PIN_SUFFIX = ".pin"

_ENTRY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*-([0-9a-f]{16})")
_STAGING_NAME = re.compile(re.escape(STAGING_PREFIX) + r"([0-9a-f]{16})-.+|" + re.escape(STAGING_PREFIX) + r".+")
_UNSAFE_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Entry:
    """A bundle as found. ``manifest`` is None when it cannot be read, and ``problem`` says why.

    ``is_newer``: a newer edgellm made it, which can read it.

    ``last_used_ns`` orders entries by use; it is a time only while clocks do not jump.
    """

    root: Path
    name: str
    short_key: str
    read_only: bool
    manifest: Manifest | None
    problem: str | None
    size_bytes: int
    last_used_ns: int
    pinned: bool
    is_newer: bool = False

    @property
    def directory(self) -> Path:
        return self.root / self.name

    @property
    def key(self) -> EngineKey | None:
        return self.manifest.key if self.manifest else None


def entry_name(model_id: str, key: EngineKey) -> str:
    """The folder name of a bundle: safe on every file system, whatever the model is called."""
    model = _UNSAFE_IN_NAMES.sub("-", model_id).strip(".-")[:MAX_MODEL_CHARACTERS] or "model"
    return f"{model}-{key.short}"


def lock_path(root: Path, short_key: str) -> Path:
    return root / f".{short_key}{LOCK_SUFFIX}"


def pin_path(root: Path, short_key: str) -> Path:
    return root / f".{short_key}{PIN_SUFFIX}"


def short_key_of(name: str) -> str | None:
    """The key in the name of a bundle's folder; None for names that no bundle has."""
    match = _ENTRY_NAME.fullmatch(name)
    return match[1] if match else None


def names_of_key(root: Path, short_key: str) -> list[str]:
    """Folders of that key; more than one only while a bundle is replaced under another model name."""
    return [name for name in _folders(root) if short_key_of(name) == short_key]


def entries_of(root: Path, *, read_only: bool) -> list[Entry]:
    """Every bundle of ``root``, by name. What a root holds beside bundles is left out."""
    return [
        read_entry(root, name, read_only=read_only)
        for name in _folders(root)
        if short_key_of(name) is not None and _has_manifest(root / name)
    ]


def read_entry(root: Path, name: str, *, read_only: bool) -> Entry:
    path = root / name / MANIFEST_FILE
    short_key = short_key_of(name) or ""
    manifest, problem, is_newer = None, None, False
    try:
        manifest = Manifest.read(path)
    except (BundleDamagedError, ManifestVersionError) as error:
        problem, is_newer = str(error), isinstance(error, ManifestVersionError)
    try:
        last_used_ns = path.stat().st_mtime_ns
    except OSError:
        last_used_ns = 0
    return Entry(
        root=root,
        name=name,
        short_key=short_key,
        read_only=read_only,
        manifest=manifest,
        problem=problem,
        size_bytes=manifest.size_bytes + tree_bytes(root / name / DERIVED_FOLDER)
        if manifest
        else tree_bytes(root / name),
        last_used_ns=last_used_ns,
        pinned=pin_path(root, short_key).exists(),
        is_newer=is_newer,
    )


def last_used_ns(root: Path, *, apart_from: str) -> int:
    """The latest use of any bundle but one; 0 when there is no other."""
    latest_ns = 0
    for name in _folders(root):
        if name != apart_from and short_key_of(name) is not None:
            with suppress(OSError):
                latest_ns = max(latest_ns, (root / name / MANIFEST_FILE).stat().st_mtime_ns)
    return latest_ns


def staging_names(root: Path) -> Iterator[tuple[str, str]]:
    """Name and short key (empty for names of the first layout) of every staging folder."""
    for name in _folders(root):
        match = _STAGING_NAME.fullmatch(name)
        if match:
            yield name, match[1] or ""


def first_layout_names(root: Path) -> Iterator[str]:
    """Bundles of the first layout, which had no manifest: nothing finds them any more."""
    for name in _folders(root):
        folder = root / name
        if (
            short_key_of(name) is not None
            and not (folder / MANIFEST_FILE).exists()
            and (folder / "config.json").is_file()
            and (folder / "llm.gguf").is_file()
        ):
            yield name


def _has_manifest(directory: Path) -> bool:
    """Also where nobody may look: that a bundle cannot be read is to be seen."""
    try:
        os.lstat(directory / MANIFEST_FILE)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _folders(root: Path) -> list[str]:
    """Symbolic links are no bundles: a removal would not stop at them."""
    try:
        return sorted(path.name for path in root.iterdir() if path.is_dir() and not path.is_symlink())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(error, root) from None
