"""Installs files and remembers which, so that an upgrade removes what it left behind and an uninstall everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgellm import __version__
from edgellm.durable_file import remove_unfinished
from edgellm.errors import ConfigError
from edgellm.host.installed_files import (
    COMMAND,
    NAME,
    Change,
    InstalledRecord,
    digest_of,
    installed_kind,
    read_record,
    refusal,
    remove,
    write_file,
    write_record,
)
from edgellm.host.release import Kind
from edgellm.host.target import Target
from edgellm.service.install.system_files import Mode, SystemFile

USER = NAME
USER_NUMBER = 780  # of sysusers.d, and of the image


def installed_mode(target: Target) -> Mode | None:
    """By the record, and by the files of a mode where there is none."""
    kind = installed_kind(target)
    return None if kind is None else Mode(kind.value)


def install_files(
    mode: Mode, target: Target, files: Mapping[str, SystemFile], *, dry_run: bool = False
) -> list[Change]:
    """Bring the target to exactly these files. Raises ConfigError when the other mode is there, and for what it may
    not write."""
    before = read_record(target)
    if installed_mode(target) is mode.other:
        root = "" if target.is_host else f" --root {target.root}"
        # Without its record an uninstall does not know what there is, and it is a command that may be gone, too.
        can_be_removed = before and before.kind.value == mode.other.value and target.path(COMMAND).exists()
        first = "" if can_be_removed else f"edgellm install --mode {mode.other.value}{root}, then: "
        raise ConfigError(
            f"edgellm is installed as a {mode.other.value} {_where(target)}, and both would be edgellm.service — run: "
            f"{first}edgellm uninstall{root}"
        )
    if mode is Mode.CONTAINER:
        _refuse_other_users(target)
    digests, enabled = before.files if before else {}, _enabled_once(mode, target)
    changes = [change for name, file in files.items() if (change := _put(target, name, file, dry_run))]
    changes += remove(target, [name for name in digests if name not in files], digests, dry_run=dry_run)
    if not dry_run:
        write_record(target, record_of(mode, files, enabled))
    return changes


def units_to_enable(mode: Mode, target: Target, units: Sequence[str]) -> list[str]:
    """Those that no installation here has enabled yet: what an administrator disabled since stays so."""
    known = _enabled_once(mode, target)
    return [unit for unit in units if unit not in known]


def note_enabled(mode: Mode, target: Target, files: Mapping[str, SystemFile], units: Sequence[str]) -> None:
    write_record(target, record_of(mode, files, [*_enabled_once(mode, target), *units]))


def _enabled_once(mode: Mode, target: Target) -> Sequence[str]:
    """By the record of an installation that is whole: an uninstall that was cut short may have disabled any of them."""
    record = read_record(target)
    is_whole = record and not record.is_being_removed and installed_mode(target) is mode
    return record.enabled if record and is_whole and record.kind.value == mode.value else ()


def _where(target: Target) -> str:
    return "here" if target.is_host else f"below {target.root}"


def record_of(mode: Mode, files: Mapping[str, SystemFile], enabled: Sequence[str]) -> InstalledRecord:
    """What is written down of a system with these files, and these units enabled."""
    ours = {name: digest_of(file.content) for name, file in files.items() if not file.is_theirs}
    return InstalledRecord(Kind(mode.value), __version__, ours, enabled)


def _put(target: Target, name: str, file: SystemFile, dry_run: bool) -> Change | None:
    path = target.path(name)
    try:
        if not dry_run:
            remove_unfinished(target.entry(name))
        is_there = path.exists()
        if is_there and (
            file.is_theirs or (path.read_bytes(), path.stat().st_mode & 0o777) == (file.content, file.mode)
        ):
            return None
    except OSError as error:
        raise refusal(target, name, error) from None
    if not dry_run:
        write_file(target, name, file.content, file.mode)
    return Change("changed" if is_there else "made", target.shown(name))


def _refuse_other_users(target: Target) -> None:
    """The number is in the image, so the host cannot choose another."""
    number, holder = target.number_of_user(USER), target.user_of_number(USER_NUMBER)
    if number not in (None, USER_NUMBER) or holder not in (None, USER):
        found = f"{holder} has the number {USER_NUMBER}" if holder not in (None, USER) else f"{USER} has {number}"
        raise ConfigError(
            f"{target.shown('etc/passwd')}: {found}, and the container's user is {USER} with {USER_NUMBER} — change it "
            "with usermod -u, or install with --mode venv"
        )
