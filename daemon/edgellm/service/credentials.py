"""Credentials of the service: files of root's in one folder that its group may read.

Systemd gives a unit copies of them when it starts, below a folder of the unit's own; a container has the folder itself
there. So that what changes counts in both at once, a server reads what its copies are copies of, where it may.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
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
FOLDER_VARIABLE = "CREDENTIALS_DIRECTORY"
AUTHORITY_FOLDER = Path("/etc/edgellm/tls")
FILE_MODE = 0o640
FILE_BYTES_MAX = 2**20
CERTIFICATE, KEY, AUTHORITY = "tls-certificate", "tls-key", "tls-authority"
SETTINGS = ("api_keys_file", "tls_certificate_file", "tls_key_file", "tls_authority_file")  # of [server]


@dataclass(frozen=True, slots=True)
class CredentialSources:
    """By the path of each copy: the file that it was made of. Of the start: whatever becomes of a source then, an older
    copy never counts again."""

    sources: Mapping[Path, Path] = field(default_factory=dict)

    @classmethod
    def of(cls, environ: Mapping[str, str], folder: Path = FOLDER) -> CredentialSources:
        """Sources that can be read, and whose content is the copy's: a unit may have its own made of other files."""
        copies = environ.get(FOLDER_VARIABLE)
        if not copies or Path(copies) == folder:
            return cls()
        sources = {}
        for name in _names_in(Path(copies)):
            copy, source = Path(copies) / name, folder / name
            content = _content(source)
            if content is not None and content == _content(copy):
                sources[copy] = source
        return cls(sources)

    def applied_to(self, settings: Settings) -> Settings:
        server = settings.server
        changed = {name: self.sources[path] for name in SETTINGS if (path := getattr(server, name)) in self.sources}
        return settings.model_copy(update={"server": server.model_copy(update=changed)}) if changed else settings


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


def give_certificate(made: PrivateCa, folder: Path) -> bool:
    """Put copies of what was made where the service has its own: where it has none yet, or of this authority. Whether
    that was so. Raises ConfigError."""
    files = {CERTIFICATE: made.server_certificate, KEY: made.server_key, AUTHORITY: made.ca_certificate}
    if not folder.is_dir():
        return False
    if any((folder / name).exists() for name in files) and _content(folder / AUTHORITY) != _content(
        made.ca_certificate
    ):
        return False
    try:
        group = folder.stat().st_gid
        for name, source in files.items():
            write_durably(folder / name, source.read_bytes(), FILE_MODE)
            if (folder / name).stat().st_gid != group:
                os.chown(folder / name, -1, group)
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: {error.strerror} — run as root") from None
    return True
