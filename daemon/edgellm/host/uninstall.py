"""Uninstall: stops what runs, takes units and files off, and says at its end what went wrong.

It needs nothing of the release itself, whose image or environment may be gone. The record says from the first change on
that it is being removed: an uninstall that was cut short is completed by another, or undone by an installation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from edgellm.errors import ConfigError
from edgellm.host.installed_files import (
    RECORD,
    UNIT_FOLDER,
    Change,
    InstalledRecord,
    installed_kind,
    read_record,
    refusal,
    remove_files,
    with_image,
    write_record,
)
from edgellm.host.release import Kind
from edgellm.host.service_unit import SERVICE, STOP_DEADLINE_SECONDS
from edgellm.host.target import Target
from edgellm.host.target_commands import TargetCommands

ADMINISTRATORS_UNITS = "etc/systemd/system"
CONTAINERS = ("edgellm", "edgellm-prewarm")  # of the Quadlet files
DRAIN_SECONDS = 85  # that podman gives a server to end, as the unit does
RUNNING_STATES = ("active", "activating", "reloading", "deactivating", "refreshing")


def uninstall(target: Target, commands: TargetCommands, *, dry_run: bool) -> Iterator[Change]:
    """Each change as it is done. Configuration, credentials, models and the user stay. ``commands`` has what went
    wrong. Raises ConfigError, with nothing removed, where there is nothing or the server goes on."""
    record = read_record(target)
    if record is None:
        raise ConfigError(_nothing_here(target))
    if target.is_running_systemd:
        _stop(with_image(target, record), commands, dry_run=dry_run)
    if not dry_run:
        write_record(target, replace(record, is_being_removed=True))
    record = with_image(target, record)
    try:
        units = [unit for unit in record.enabled if _can_be_disabled(target, unit)]
        if units:
            commands.run_for_root("systemctl", "--quiet", "disable", *units)
        yield from _remove_wants(target, record, dry_run=dry_run)
        yield from remove_files(target, record, dry_run=dry_run)
    except ConfigError as error:
        raise ConfigError(_halfway(target, record, str(error))) from None
    finally:
        if target.is_running_systemd:
            commands.run("systemctl", "daemon-reload")
    if target.is_running_systemd:
        failed = [unit for unit in record.units if _state(commands, unit) == "failed"]
        if failed:
            commands.run("systemctl", "reset-failed", *failed)


def _halfway(target: Target, record: InstalledRecord, cause: str) -> str:
    root = "" if target.is_host else f" --root {target.root}"
    return (
        f"edgellm is disabled, and removed in part only: {cause} — mend that, then run edgellm uninstall{root} "
        f"again, or edgellm install --mode {record.kind.value}{root} to have it back"
    )


def _nothing_here(target: Target) -> str:
    missing = f"{target.shown(RECORD)} is not there: edgellm install has not installed anything here"
    kind = installed_kind(target)
    if kind is None:
        return missing
    root = "" if target.is_host else f" --root {target.root}"
    return (
        f"{target.shown(RECORD)} is not there, and it says what is to be removed — write it anew with: "
        f"edgellm install --mode {kind.value}{root}, then: edgellm uninstall{root}"
    )


def _can_be_disabled(target: Target, unit: str) -> bool:
    """Systemd refuses for one that is not there; what masks one is the administrator's."""
    return target.path(f"{UNIT_FOLDER}/{unit}").exists() and not target.is_masked(unit)


def _remove_wants(target: Target, record: InstalledRecord, *, dry_run: bool) -> Iterator[Change]:
    """What systemd left: it disables no unit that is masked or whose file is gone, and may be missing or fail."""
    for unit in record.enabled:
        for folder in sorted(target.path(ADMINISTRATORS_UNITS).glob("*.wants")):
            name = f"{ADMINISTRATORS_UNITS}/{folder.name}/{unit}"
            link = target.entry(name)
            if not link.is_symlink():
                continue
            try:
                if not dry_run:
                    link.unlink()
            except OSError as error:
                raise refusal(target, name, error) from None
            yield Change("removed", target.shown(name))


def _stop(record: InstalledRecord, commands: TargetCommands, *, dry_run: bool) -> None:
    running = [unit for unit in record.units if _state(commands, unit) in RUNNING_STATES]
    if running:
        commands.run("systemctl", "stop", *running, deadline_seconds=STOP_DEADLINE_SECONDS)
    left = _running_containers(commands) if record.kind is Kind.CONTAINER else []
    if dry_run:
        left = [name for name in left if f"{name}.service" not in running]
    if left:
        # Of a unit that is no more, because a drop-in was wrong or its file was removed.
        commands.run("podman", "stop", f"--time={DRAIN_SECONDS}", *left)
        commands.run("podman", "rm", "--force", "--ignore", "--time=0", *left)
    if dry_run:
        return
    goes_on = [SERVICE] if _state(commands, SERVICE) in RUNNING_STATES else []
    goes_on += _running_containers(commands) if record.kind is Kind.CONTAINER else []
    if goes_on:
        why = "; ".join(commands.problems) or "it was told to stop"
        raise ConfigError(f"{goes_on[0]} goes on, so that nothing was removed: {why} — stop it, then run this again")


def _state(commands: TargetCommands, unit: str) -> str:
    said = commands.ask("systemctl", "show", "--property=ActiveState", unit)
    return "" if said is None else said.output.strip().removeprefix("ActiveState=")


def _running_containers(commands: TargetCommands) -> list[str]:
    said = commands.ask("podman", "ps", "--format={{.Names}}")
    return [] if said is None else [name for name in said.output.split() if name in CONTAINERS]
