"""What the administrator of a host writes: the configuration and drop-ins of the units."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path

from edgellm.durable_file import make_private_folder, write_durably
from edgellm.errors import UpgradeError
from edgellm.host.paths import HostPaths

CONFIGURATION = "etc/edgellm/edgellm.toml"
SERVICE_DROP_INS = "etc/systemd/system/edgellm.service.d"
PREWARM_DROP_INS = "etc/systemd/system/edgellm-prewarm.service.d"

SETTING_PREFIX = "EDGELLM_"

# Names below the root with the SHA-256 of their content, None for a file that is not there.
Digests = Mapping[str, str | None]


def operator_files(paths: HostPaths) -> Digests:
    """Those that are there. Raises UpgradeError."""
    names = [CONFIGURATION] if paths.at(CONFIGURATION).is_file() else []
    for folder in (SERVICE_DROP_INS, PREWARM_DROP_INS):
        if paths.at(folder).is_dir():
            names += [f"{folder}/{file.name}" for file in sorted(paths.at(folder).iterdir()) if file.is_file()]
    try:
        return {name: hashlib.sha256(paths.at(name).read_bytes()).hexdigest() for name in names}
    except OSError as error:
        raise UpgradeError(f"{error.filename}: {error.strerror}") from None


def differing(present: Digests, other: Digests) -> Digests:
    """Those of ``present`` that are not as in ``other``, and those that only ``other`` has, as None."""
    names = sorted({*present, *other})
    return {name: present.get(name) for name in names if present.get(name) != other.get(name)}


def edited_since(paths: HostPaths, placed: Digests, kept: Digests) -> Collection[str]:
    """Those that are neither as an upgrade placed them last nor as in ``kept``."""
    present = operator_files(paths)
    return {name for name in differing(present, kept) if name not in placed or present.get(name) != placed[name]}


def save_copies(paths: HostPaths, names: Collection[str], folder: Path) -> None:
    """For root alone; those that are not there are left out. Raises UpgradeError."""
    try:
        for name in names:
            if not paths.at(name).is_file():
                continue
            copy = folder / name
            for parent in reversed([one for one in copy.parents if one == folder or folder in one.parents]):
                make_private_folder(parent)
            write_durably(copy, paths.at(name).read_bytes())
    except OSError as error:
        raise UpgradeError(f"{error.filename or folder}: {error.strerror}") from None


def setting_variables(variables: Mapping[str, str]) -> Mapping[str, str]:
    return {name: value for name, value in variables.items() if name.startswith(SETTING_PREFIX)}


def drop_in_environment(paths: HostPaths) -> Mapping[str, str]:
    """The variables that drop-ins set for the service; a later file counts, and an empty line takes all back."""
    found: dict[str, str] = {}
    for name in sorted(name for name in operator_files(paths) if Path(name).match(f"{SERVICE_DROP_INS}/*.conf")):
        for line in paths.at(name).read_text(errors="replace").splitlines():
            key, sign, value = (part.strip() for part in line.partition("="))
            if key != "Environment" or not sign:
                continue
            if not value:
                found.clear()
            try:
                words = [word.partition("=") for word in shlex.split(value) if "=" in word]
            except ValueError:
                continue  # systemd says so itself
            found.update({name: content for name, _, content in words})
    return found
