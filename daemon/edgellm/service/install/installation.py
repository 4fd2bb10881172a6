"""Installs files and remembers which, so that an upgrade removes what it left behind and an uninstall everything."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgellm import __version__
from edgellm.durable_file import write_durably
from edgellm.errors import ConfigError
from edgellm.service.install.system_files import Mode, SystemFile, source_folder
from edgellm.service.install.target import Target

RECORD = "usr/local/lib/edgellm/installed.json"
USER = "edgellm"
USER_NUMBER = 780  # of sysusers.d, and of the image


@dataclass(frozen=True, slots=True)
class Change:
    """``what`` is made, changed, removed or kept."""

    what: str
    path: Path

    def __str__(self) -> str:
        return f"{self.what:<8} {self.path}"


def installed_mode(target: Target) -> Mode | None:
    """By the record, and by the files of a mode where there is none."""
    recorded = _read_record(target)
    if recorded is not None:
        return recorded[0]
    for mode in Mode:
        if any(target.path(name).exists() for name in _units_of(mode)):
            return mode
    return None


def install_files(
    mode: Mode, target: Target, files: Mapping[str, SystemFile], *, dry_run: bool = False
) -> list[Change]:
    """Bring the target to exactly these files. Raises ConfigError when the other mode is there, and for what it may
    not write."""
    if installed_mode(target) is mode.other:
        raise ConfigError(
            f"edgellm is installed as a {mode.other.value} {_where(target)}, and both would be edgellm.service — run: "
            f"edgellm uninstall{'' if target.is_this_system else f' --root {target.root}'}"
        )
    if mode is Mode.CONTAINER:
        _refuse_other_users(target)
    _, before = _read_record(target) or (mode, {})
    changes = [change for name, file in files.items() if (change := _put(target.path(name), file, dry_run))]
    changes += _remove(target, [name for name in before if name not in files], before, dry_run)
    if not dry_run:
        _write(target.path(RECORD), record_of(mode, files), 0o644)
    return changes


def _where(target: Target) -> str:
    return "here" if target.is_this_system else f"below {target.root}"


def record_of(mode: Mode, files: Mapping[str, SystemFile]) -> bytes:
    """What ``RECORD`` says of a system with these files."""
    ours = {name: _digest(file.content) for name, file in files.items() if not file.is_theirs}
    return (json.dumps({"version": __version__, "mode": mode.value, "files": ours}, indent=1) + "\n").encode()


def remove_files(target: Target, *, dry_run: bool = False) -> list[Change]:
    """Remove what was installed. Configuration, credentials, models and the user stay. Raises ConfigError."""
    recorded = _read_record(target)
    if recorded is None:
        raise ConfigError(f"{target.path(RECORD)} is not there: edgellm install has not installed anything here")
    changes = _remove(target, list(recorded[1]), recorded[1], dry_run)
    if not dry_run:
        target.path(RECORD).unlink()
        _remove_empty_folders(target.path(RECORD).parent)
    return changes


def _put(path: Path, file: SystemFile, dry_run: bool) -> Change | None:
    try:
        is_there = path.exists()
        if is_there and (
            file.is_theirs or (path.read_bytes(), path.stat().st_mode & 0o777) == (file.content, file.mode)
        ):
            return None
    except OSError as error:
        raise _refusal(path, error) from None
    if not dry_run:
        _write(path, file.content, file.mode)
    return Change("changed" if is_there else "made", path)


def _write(path: Path, content: bytes, mode: int) -> None:
    try:
        # Folders are everybody's to look into, whatever the caller's umask.
        for folder in reversed([one for one in path.parents if not one.exists()]):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)
        write_durably(path, content, mode)
    except OSError as error:
        raise _refusal(path, error) from None


def _remove(target: Target, names: list[str], digests: Mapping[str, str], dry_run: bool) -> list[Change]:
    """Files that somebody changed since are kept: what is in them may be wanted."""
    changes = []
    for name in names:
        path = target.path(name)
        try:
            if not path.exists():
                continue
            if _digest(path.read_bytes()) != digests[name]:
                changes.append(Change("kept", path))
                continue
            if not dry_run:
                path.unlink()
                _remove_empty_folders(path.parent)
        except OSError as error:
            raise _refusal(path, error) from None
        changes.append(Change("removed", path))
    return changes


def _remove_empty_folders(folder: Path) -> None:
    """Only those that carry our name."""
    while USER in folder.name and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _refuse_other_users(target: Target) -> None:
    """The number is in the image, so the host cannot choose another."""
    number, holder = target.number_of_user(USER), target.user_of_number(USER_NUMBER)
    if number not in (None, USER_NUMBER) or holder not in (None, USER):
        found = f"{holder} has the number {USER_NUMBER}" if holder not in (None, USER) else f"{USER} has {number}"
        raise ConfigError(
            f"{target.path('etc/passwd')}: {found}, and the container's user is {USER} with {USER_NUMBER} — change it "
            "with usermod -u, or install with --mode venv"
        )


def _units_of(mode: Mode) -> Iterator[str]:
    folder = source_folder() / mode.value
    for path in folder.rglob("edgellm*"):
        if path.suffix in (".service", ".container"):
            yield path.relative_to(folder).as_posix()


def _read_record(target: Target) -> tuple[Mode, Mapping[str, str]] | None:
    path = target.path(RECORD)
    try:
        record = json.loads(path.read_bytes())
        files = {str(name): str(digest) for name, digest in record["files"].items()}
        mode = Mode(record["mode"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refusal(path, error) from None
    except (ValueError, KeyError, AttributeError, TypeError):
        raise ConfigError(f"{path} is damaged — remove it, then run edgellm install again") from None
    if any(name.startswith("/") or ".." in Path(name).parts for name in files):
        raise ConfigError(f"{path} names files outside {target.root} — remove it, then run edgellm install again")
    return mode, files


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _refusal(path: Path, error: OSError) -> ConfigError:
    remedy = " — run as root" if os.geteuid() != 0 else ""
    return ConfigError(f"{path}: {error.strerror}{remedy}")
