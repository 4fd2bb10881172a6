"""What `edgellm install` put onto a system, by the record that it left there, and how that is taken off again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from edgellm.durable_file import remove_unfinished, write_durably
from edgellm.errors import ConfigError
from edgellm.host.release import Kind
from edgellm.host.target import Target

RECORD = "usr/local/lib/edgellm/installed.json"
RECORD_MODE = 0o644
IMAGE_MANIFEST = "usr/share/edgellm/image/manifest.json"  # of image/build
IMAGE_UNITS_FOLDER = "usr/local/lib/systemd/"
UNIT_FOLDER = "usr/local/lib/systemd/system"
QUADLET_FOLDER = "usr/share/containers/systemd"
HOST_TOOL = "usr/local/lib/edgellm/host.pyz"
COMMAND = "usr/local/bin/edgellm"
OWN_TOOLS = (COMMAND, HOST_TOOL)
NAME = "edgellm"
# What makes a system one of that kind, also where the record was lost.
UNITS_OF_KIND: Mapping[Kind, Sequence[str]] = {
    Kind.VENV: (f"{UNIT_FOLDER}/edgellm.service", f"{UNIT_FOLDER}/edgellm-prewarm.service"),
    Kind.CONTAINER: (f"{QUADLET_FOLDER}/edgellm.container", f"{QUADLET_FOLDER}/edgellm-prewarm.container"),
}
# What systemd and podman would go on reading there.
READ_FOLDERS = (UNIT_FOLDER, QUADLET_FOLDER)
UNIT_SUFFIXES = (".service", ".target")
SET_ASIDE_SUFFIX = ".changed"


@dataclass(frozen=True, slots=True)
class Change:
    """``what`` is made, changed, removed or kept."""

    what: str
    path: Path
    note: str = ""

    def __str__(self) -> str:
        return f"{self.what:<8} {self.path}{self.note and f' ({self.note})'}"


@dataclass(frozen=True, slots=True)
class InstalledRecord:
    """``files`` are names below the root with their digests, ``enabled`` the units that an installation enabled once:
    whether they still are is the administrator's. ``is_being_removed``: an uninstall began, and may have disabled
    every unit."""

    kind: Kind
    version: str
    files: Mapping[str, str] = field(default_factory=dict)
    enabled: Sequence[str] = ()
    is_being_removed: bool = False

    def as_bytes(self) -> bytes:
        content: dict[str, object] = {"version": self.version, "mode": self.kind.value}
        if self.is_being_removed:
            content["being_removed"] = True
        content |= {"enabled": sorted(self.enabled), "files": dict(self.files)}
        return (json.dumps(content, indent=1) + "\n").encode()

    @property
    def units(self) -> Sequence[str]:
        """Every one that systemd has of these files."""
        made = [f"{PurePosixPath(name).stem}.service" for name in self.files if name.endswith(".container")]
        return [*made, *_own_units(self.files, *UNIT_SUFFIXES)]


def read_record(target: Target) -> InstalledRecord | None:
    """None where there is none. Raises ConfigError."""
    try:
        record = json.loads(target.path(RECORD).read_bytes())
        files = {str(name): str(digest) for name, digest in record["files"].items()}
        kind, version = Kind(record["mode"]), str(record.get("version", ""))
        # Installations that did not write it down had enabled every unit.
        enabled = record["enabled"] if "enabled" in record else _own_units(files, ".service")
        units = [str(unit) for unit in enabled]
        found = InstalledRecord(kind, version, files, units, record.get("being_removed") is True)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refusal(target, RECORD, error) from None
    except (ValueError, KeyError, AttributeError, TypeError):
        raise ConfigError(f"{target.shown(RECORD)} is damaged — remove it, then run edgellm install again") from None
    if any(name.startswith("/") or ".." in PurePosixPath(name).parts for name in files):
        raise ConfigError(
            f"{target.shown(RECORD)} names files outside {target.shown('')} — remove it, then run edgellm install again"
        )
    return found


def with_image(target: Target, record: InstalledRecord) -> InstalledRecord:
    """And the units that a board's image brought beside, as its manifest says: those of the first boot."""
    try:
        files = json.loads(target.path(IMAGE_MANIFEST).read_bytes())["files"]
        units = {
            str(name): str(file["sha256"])
            for name, file in files.items()
            if name.startswith(IMAGE_UNITS_FOLDER) and ".." not in name and "sha256" in file
        }
        wanted = [PurePosixPath(name).name for name, file in files.items() if ".wants/" in name and "link" in file]
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return record  # no board, or nothing that can be told
    enabled = [*record.enabled, *(unit for unit in wanted if unit not in record.enabled)]
    return replace(record, files={**units, **record.files}, enabled=enabled)


def installed_kind(target: Target) -> Kind | None:
    """By the units of a kind that are there: a record without them is what was left of an installation."""
    record = read_record(target)
    kinds = sorted(UNITS_OF_KIND, key=lambda kind: record is None or kind is not record.kind)
    for kind in kinds:
        if any(target.path(name).exists() for name in UNITS_OF_KIND[kind]):
            return kind
    return None


def write_record(target: Target, record: InstalledRecord) -> None:
    """Raises ConfigError."""
    write_file(target, RECORD, record.as_bytes(), RECORD_MODE)


def write_file(target: Target, name: str, content: bytes, mode: int) -> None:
    """Raises ConfigError."""
    path = target.entry(name)
    try:
        # Folders are everybody's to look into, whatever the caller's umask.
        for folder in reversed([one for one in path.parents if not one.exists()]):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)
        remove_unfinished(path)
        write_durably(path, content, mode)
    except OSError as error:
        raise refusal(target, name, error) from None


def remove_files(target: Target, record: InstalledRecord, *, dry_run: bool = False) -> Iterator[Change]:
    """Remove what was installed, and the record. Configuration, credentials, models and the user stay. Raises
    ConfigError."""
    # What this is done with goes last: cut short, it can be run again.
    names = sorted(record.files, key=lambda name: name in OWN_TOOLS)
    yield from remove(target, names, record.files, dry_run=dry_run)
    if not dry_run:
        path = target.entry(RECORD)
        try:
            remove_unfinished(path)
            path.unlink(missing_ok=True)
            _remove_empty_folders(path.parent)
        except OSError as error:
            raise refusal(target, RECORD, error) from None


def remove(
    target: Target, names: Iterable[str], digests: Mapping[str, str], *, dry_run: bool = False
) -> Iterator[Change]:
    """Files that somebody changed since are kept: what is in them may be wanted. A unit is set aside under another
    name, so that it is none any more."""
    for name in names:
        path = target.entry(name)
        try:
            if not dry_run:
                remove_unfinished(path)
            if not os.path.lexists(path):
                if not dry_run:
                    _remove_empty_folders(path.parent)  # one that was cut short left it
                continue
            present = target.path(name)
            if present.is_file() and digest_of(present.read_bytes()) == digests[name]:
                if not dry_run:
                    path.unlink()
                    _remove_empty_folders(path.parent)
                yield Change("removed", target.shown(name))
            elif name.startswith(READ_FOLDERS):
                aside = _free_name(path)
                if not dry_run:
                    path.rename(aside)
                yield Change("kept", target.shown(name), f"changed since: now {aside.name}, and no unit")
            else:
                yield Change("kept", target.shown(name), "changed since")
        except OSError as error:
            raise refusal(target, name, error) from None


def _own_units(names: Iterable[str], *suffixes: str) -> list[str]:
    paths = map(PurePosixPath, names)
    return [path.name for path in paths if str(path.parent) == UNIT_FOLDER and path.suffix in suffixes]


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def refusal(target: Target, name: str, error: OSError) -> ConfigError:
    remedy = " — run as root" if os.geteuid() != 0 else ""
    return ConfigError(f"{target.shown(name)}: {error.strerror}{remedy}")


def _free_name(path: Path) -> Path:
    number, aside = 1, path.with_name(f"{path.name}{SET_ASIDE_SUFFIX}")
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}{SET_ASIDE_SUFFIX}-{number}")
    return aside


def _remove_empty_folders(folder: Path) -> None:
    """Only those that carry our name."""
    while NAME in folder.name and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
