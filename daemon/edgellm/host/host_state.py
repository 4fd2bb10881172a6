"""HostState: what root remembers of releases and of the running upgrade, in files that outlive a power cut."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from edgellm.durable_file import make_private_folder, sync_folder, write_durably, write_json_durably
from edgellm.errors import ConfigError, HostSpaceError, UpgradeRunningError
from edgellm.host.disk_reserve import DiskReserve
from edgellm.host.disk_room import write_failure
from edgellm.host.edit_history import EditHistory
from edgellm.host.operator_files import Digests
from edgellm.host.paths import HostPaths
from edgellm.host.release import Release
from edgellm.host.versions import Version

FORMAT = 1


class Step(Enum):
    """In the order in which they are taken."""

    STAGED = "staged"
    DRAINED = "drained"
    SWITCHED = "switched"
    READY = "ready"
    SMOKE = "smoke"
    KEPT = "kept"


class StepState(Enum):
    BEGUN = "begun"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Journey:
    """An upgrade under way: from which release to which, and how far it is. ``to_release`` is known once staged.

    ``source`` is None for a release that is here. ``interrupted`` says that the machine started again in between, and
    that ``from_release`` serves since. ``prepared`` says that ``to_release`` lies beside it and waits. ``placed`` is
    what the switch changed of the administrator's files; None before it was done, as is ``edit_history``, which holds
    once the release serves. With ``edits_folder`` the release refused what was edited since another one came: it is
    saved there.
    """

    from_release: Release
    source: str | None
    keep: int
    to_release: Release | None = None
    config_file: str | None = None
    is_rollback: bool = False
    steps: Sequence[tuple[Step, StepState]] = field(default=())
    interrupted: bool = False
    floor: str | None = None
    pinned_engines: Sequence[str] = field(default=())
    prepared: bool = False
    placed: Digests | None = None
    edits_folder: str | None = None
    refusal_of_edits: str | None = None
    edit_history: EditHistory | None = None

    def at(self, step: Step, state: StepState) -> Journey:
        return replace(self, steps=(*self.steps, (step, state)))

    def has_done(self, step: Step) -> bool:
        return (step, StepState.DONE) in self.steps

    def has_begun(self, step: Step) -> bool:
        return (step, StepState.BEGUN) in self.steps

    @property
    def waits(self) -> bool:
        """What serves was left alone until now, and nothing is cut short by a boot."""
        return self.prepared and not self.has_begun(Step.DRAINED)

    @property
    def last(self) -> str:
        """For people."""
        if not self.steps:
            return "its beginning"
        step, state = self.steps[-1]
        return f"{step.value} ({state.value})"

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "from": self.from_release.as_json(),
            "to": None if self.to_release is None else self.to_release.as_json(),
            "source": self.source,
            "keep": self.keep,
            "config_file": self.config_file,
            "rollback": self.is_rollback,
            "interrupted": self.interrupted,
            "floor": self.floor,
            "pinned_engines": list(self.pinned_engines),
            "prepared": self.prepared,
            "placed": None if self.placed is None else dict(self.placed),
            "edits_folder": self.edits_folder,
            "refusal_of_edits": self.refusal_of_edits,
            "edit_history": None if self.edit_history is None else self.edit_history.as_json(),
            "steps": [{"step": step.value, "state": state.value} for step, state in self.steps],
        }

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Journey:
        return cls(
            Release.of_json(value["from"]),
            value["source"],
            int(value["keep"]),
            None if value["to"] is None else Release.of_json(value["to"]),
            value["config_file"],
            bool(value["rollback"]),
            tuple((Step(one["step"]), StepState(one["state"])) for one in value["steps"]),
            bool(value["interrupted"]),
            value["floor"],
            tuple(str(name) for name in value["pinned_engines"]),
            # Earlier releases wrote none of these.
            bool(value.get("prepared", False)),
            None if value.get("placed") is None else dict(value["placed"]),
            value.get("edits_folder"),
            value.get("refusal_of_edits"),
            None if value.get("edit_history") is None else EditHistory.of_json(value["edit_history"]),
        )


class HostState:
    """All of it below ``/var/lib/edgellm-host``. Reading raises ConfigError for a file that was damaged, writing
    HostSpaceError where the disk is full."""

    def __init__(self, paths: HostPaths) -> None:
        self.folder = paths.state
        self._releases = self.folder / "releases.json"
        self._journey = self.folder / "upgrade.json"
        self._last = self.folder / "last-upgrade.json"
        self._floor = self.folder / "version-floor"
        self._placed = self.folder / "placed.json"
        self._first_installation = self.folder / "first-installation.json"
        self._reserve = DiskReserve(self.folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Raises UpgradeRunningError while another process is at it, HostSpaceError where nothing can be written."""
        try:
            make_private_folder(self.folder)
            self._reserve.give_up_where_full()
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise write_failure(self.folder, error) from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
                raise UpgradeRunningError(
                    f"another upgrade runs on this machine (pid {holder}) — wait until it has ended"
                ) from None
            with suppress(OSError):  # for people alone: a disk that is full is no reason to undo nothing
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            try:
                yield
            finally:
                # Of what was refused at once nothing stays.
                if any(file.exists() for file in (self._releases, self._journey, self._last)):
                    self._reserve.keep()
        finally:
            os.close(descriptor)

    # Releases, the newest start last

    def releases(self) -> list[Release]:
        value = _read(self._releases)
        if value is None:
            return []
        with _damage_named(self._releases):
            return [Release.of_json(one) for one in value["releases"]]

    def write_releases(self, releases: Sequence[Release]) -> None:
        self._write(self._releases, {"format": FORMAT, "releases": [one.as_json() for one in releases]})

    def snapshot_of(self, release: Release) -> Path:
        """The folder of what belonged to it on the host when it was left."""
        return self.folder / "snapshots" / release.id

    # The administrator's files

    def edit_history(self) -> EditHistory:
        value = _read(self._placed)
        with _damage_named(self._placed):
            return EditHistory() if value is None else EditHistory.of_json(value)

    def write_edit_history(self, history: EditHistory) -> None:
        self._write(self._placed, {"format": FORMAT, **history.as_json()})

    def free_edits_folder(self, release: Release) -> Path:
        """For what was edited while it served."""
        number, folder = 1, self.folder / "edits" / release.id
        while folder.exists():
            number += 1
            folder = folder.with_name(f"{release.id}-{number}")
        return folder

    # The upgrade under way

    def journey(self) -> Journey | None:
        value = _read(self._journey)
        if value is None:
            return None
        with _damage_named(self._journey):
            return Journey.of_json(value)

    def write_journey(self, journey: Journey) -> None:
        self._write(self._journey, journey.as_json())

    def end_journey(self, report: Mapping[str, Any]) -> None:
        """Where the disk has no room for the report, it ends without one."""
        try:
            self._write(self._last, {"format": FORMAT, "time_seconds": time.time(), **report})
        except HostSpaceError:
            self._last.unlink(missing_ok=True)  # it would speak of another upgrade
        self._journey.unlink(missing_ok=True)
        sync_folder(self.folder)

    def last_report(self) -> Mapping[str, Any] | None:
        value = _read(self._last)
        return value if isinstance(value, dict) else None

    # The oldest version that may run

    def floor(self) -> Version | None:
        try:
            text = self._floor.read_text().strip()
        except FileNotFoundError:
            return None
        with _damage_named(self._floor):
            return Version(text)

    def raise_floor(self, version: Version) -> Version:
        """It is never lowered. Returns the one that holds."""
        present = self.floor()
        if present is not None and present >= version:
            return present
        try:
            make_private_folder(self.folder)
            write_durably(self._floor, f"{version}\n".encode())
        except OSError as error:
            raise write_failure(self._floor, error) from None
        return version

    # The first installation, from when it begins until it serves

    def first_installation(self) -> str | None:
        """The SHA-256 of the configuration that came with it, or nothing where none did; None where it is over."""
        value = _read(self._first_installation)
        with _damage_named(self._first_installation):
            return None if value is None else str(value["configuration_sha256"])

    def write_first_installation(self, configuration_sha256: str) -> None:
        self._write(self._first_installation, {"format": FORMAT, "configuration_sha256": configuration_sha256})

    def end_first_installation(self) -> None:
        self._first_installation.unlink(missing_ok=True)

    def _write(self, path: Path, value: Any) -> None:
        try:
            make_private_folder(self.folder)
            write_json_durably(path, value)
        except OSError as error:
            raise write_failure(path, error) from None


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror} — run as root") from None
    except ValueError:
        raise ConfigError(f"{path} is damaged — move it away, then look at: edgellm upgrade --list") from None


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"{path} is damaged — move it away, then look at: edgellm upgrade --list") from None
