"""Credentials of the service: files of root's in one folder that its group may read.

Systemd gives a unit copies of them when it starts, below a folder of the unit's own; a container has the folder itself
there. So that what changes counts in both at once, a server reads what its copies are copies of, where it may.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgellm.config import Settings
from edgellm.config.regular_file import open_regular
from edgellm.durable_file import write_durably
from edgellm.errors import ConfigError
from edgellm.host.start_command import CREDENTIALS_FOLDER

if TYPE_CHECKING:
    from edgellm.service.private_ca import PrivateCa

FOLDER = Path(CREDENTIALS_FOLDER)
UNIT_FOLDER = Path("/run/credentials/edgellm.service")  # where the server has them, in both modes
DROP_IN_FOLDERS = tuple(Path(root) / "systemd/system/edgellm.service.d" for root in ("/etc", "/run"))
FOLDER_VARIABLE = "CREDENTIALS_DIRECTORY"
AUTHORITY_FOLDER = Path("/etc/edgellm/tls")
FILE_MODE = 0o640
SERVICE_GROUP = "edgellm"
FILE_BYTES_MAX = 2**20
CERTIFICATE, KEY, AUTHORITY = "tls-certificate", "tls-key", "tls-authority"
SETTINGS = ("api_keys_file", "tls_certificate_file", "tls_key_file", "tls_authority_file")  # of [server]


class CredentialSources:
    """By the path of each copy: the file that it was made of. Whatever becomes of a source, an older copy never counts
    again. A source that the service may not read is followed as soon as it may.
    """

    def __init__(self, sources: Mapping[Path, Path], unreadable: Mapping[Path, Path]) -> None:
        self._sources = dict(sources)
        self._unreadable = dict(unreadable)

    @classmethod
    def of(cls, environ: Mapping[str, str], folder: Path = FOLDER) -> CredentialSources:
        """Sources whose content is the copy's, or was when it was made: a unit may have its own made of other files."""
        copies = environ.get(FOLDER_VARIABLE)
        sources: dict[Path, Path] = {}
        unreadable: dict[Path, Path] = {}
        if copies and Path(copies) != folder:
            for name in _names_in(Path(copies)):
                copy, source = Path(copies) / name, folder / name
                content = _content(source)
                if content is None and source.exists():
                    unreadable[copy] = source
                elif content is not None and (content == _content(copy) or _changed_after(source, copy)):
                    sources[copy] = source
        return cls(sources, unreadable)

    def applied_to(self, settings: Settings) -> Settings:
        for copy, source in list(self._unreadable.items()):
            if _content(source) is not None:
                self._sources[copy] = self._unreadable.pop(copy)
        server = settings.server
        changed = {name: self._sources[path] for name in SETTINGS if (path := getattr(server, name)) in self._sources}
        return settings.model_copy(update={"server": server.model_copy(update=changed)}) if changed else settings

    def awaited(self, path: Path | None) -> list[Path]:
        """The source of a copy that does not count yet."""
        return [source for copy, source in self._unreadable.items() if copy == path]

    def warnings(self) -> list[str]:
        return [
            f"the service may not read {source}: it goes by the copy of its start until it may — run: "
            f"chgrp {SERVICE_GROUP} {source} && chmod {FILE_MODE:o} {source}"
            for source in self._unreadable.values()
        ]


def handed_next(copy: Path, folder: Path = FOLDER, drop_in_folders: Sequence[Path] = DROP_IN_FOLDERS) -> Path | None:
    """The file that the service's next start has as ``copy``. None for what is no copy, or is one of a file that a
    drop-in of the unit may name."""
    if copy.parent != UNIT_FOLDER:
        return None
    drop_ins = (file for one in drop_in_folders for file in sorted(one.glob("*.conf")))
    if any(b"Credential" in (_content(file) or b"Credential") for file in drop_ins):
        return None
    return folder / copy.name


def _changed_after(source: Path, copy: Path) -> bool:
    try:
        return source.stat().st_ctime_ns > copy.stat().st_ctime_ns
    except OSError:
        return False


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _content(path: Path) -> bytes | None:
    try:
        with open_regular(path) as stream:
            return stream.read(FILE_BYTES_MAX)
    except OSError:
        return None


def give_certificate(made: PrivateCa, folder: Path, earlier_authority: bytes | None = None) -> bool:
    """Put copies of what was made where the service has its own: where it has none yet, or of this authority, or of the
    one whose place it took. Whether that was so. Raises ConfigError."""
    files = {CERTIFICATE: made.server_certificate, KEY: made.server_key, AUTHORITY: made.ca_certificate}
    if not folder.is_dir():
        return False
    replaced = {_content(made.ca_certificate), earlier_authority} - {None}
    if any((folder / name).exists() for name in files) and _content(folder / AUTHORITY) not in replaced:
        return False
    try:
        group = folder.stat().st_gid
        for name, source in files.items():
            write_durably(folder / name, source.read_bytes(), FILE_MODE)
            if (folder / name).stat().st_gid != group:
                os.chown(folder / name, -1, group)
    except OSError as error:
        remedy = "run as root" if isinstance(error, PermissionError) else "make room there, and run it again"
        raise ConfigError(f"{error.filename or folder}: {error.strerror} — {remedy}") from None
    return True
