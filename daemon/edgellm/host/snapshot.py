"""What belongs to a release on its host beside the release itself: configuration, drop-ins, units and programs.

Credentials are left out: a key that was revoked must not come back with an earlier release.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgellm.durable_file import make_private_folder, sync_folder, write_durably
from edgellm.errors import UpgradeError
from edgellm.host.operator_files import CONFIGURATION, PREWARM_DROP_INS, SERVICE_DROP_INS, Digests, operator_files
from edgellm.host.paths import HostPaths

INDEX = "index.json"
_THEIR_FOLDERS = (f"{SERVICE_DROP_INS}/", f"{PREWARM_DROP_INS}/")


def take_snapshot(paths: HostPaths, folder: Path) -> None:
    """Whole or not at all; replaces the one that is there. Raises UpgradeError."""
    unfinished = folder.with_name(f".{folder.name}")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        make_private_folder(folder.parent)
        make_private_folder(unfinished)
        index = {}
        for number, name in enumerate(sorted(set(_names(paths)))):
            file = paths.at(name)
            if file.is_file():
                status = file.stat()
                write_durably(unfinished / str(number), file.read_bytes())
                index[name] = {"content": str(number), "mode": status.st_mode & 0o7777, "uid": status.st_uid}
                index[name]["gid"] = status.st_gid
        write_durably(unfinished / INDEX, json.dumps(index, indent=1).encode())
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise UpgradeError(f"{error.filename or folder}: {error.strerror}") from None


def restore_snapshot(paths: HostPaths, folder: Path, left_alone: Collection[str] = ()) -> None:
    """What came since is removed. Doing it twice is as doing it once. Raises UpgradeError."""
    with _damage_named(folder):
        index: dict[str, Any] = json.loads((folder / INDEX).read_bytes())
        for name in sorted(set(_names(paths)) - set(index) - set(left_alone)):
            paths.at(name).unlink(missing_ok=True)
        for name, entry in index.items():
            if name in left_alone:
                continue
            content, file = (folder / entry["content"]).read_bytes(), paths.at(name)
            if file.is_file() and file.read_bytes() == content and file.stat().st_mode & 0o7777 == entry["mode"]:
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            write_durably(file, content, entry["mode"])
            os.chown(file, entry["uid"], entry["gid"])


def operator_files_in(folder: Path) -> Digests:
    """What the administrator had written then. Raises UpgradeError."""
    with _damage_named(folder):
        index: dict[str, Any] = json.loads((folder / INDEX).read_bytes())
        theirs = [name for name in index if name == CONFIGURATION or name.startswith(_THEIR_FOLDERS)]
        return {name: hashlib.sha256((folder / index[name]["content"]).read_bytes()).hexdigest() for name in theirs}


def has_snapshot(folder: Path) -> bool:
    return (folder / INDEX).is_file()


def drop_snapshot(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def installed_files(paths: HostPaths) -> list[str]:
    """Names below the root of what `edgellm install` put there; empty where it has not run."""
    try:
        record = json.loads(paths.installed_record.read_bytes())
        names = [str(name) for name in record["files"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [name for name in names if not name.startswith("/") and ".." not in Path(name).parts]


def _names(paths: HostPaths) -> Iterator[str]:
    yield from operator_files(paths)
    installed = installed_files(paths)
    yield from installed
    if installed:
        yield paths.installed_record.relative_to(paths.root).as_posix()


def content_in(folder: Path, name: str) -> bytes | None:
    """None where the snapshot has no such file. Raises UpgradeError."""
    with _damage_named(folder):
        entry = json.loads((folder / INDEX).read_bytes()).get(name)
        return None if entry is None else (folder / entry["content"]).read_bytes()


@contextmanager
def _damage_named(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UpgradeError(f"{error.filename or folder}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise UpgradeError(f"{folder / INDEX} is damaged — put the configuration back by hand") from None
