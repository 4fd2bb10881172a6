"""FirstConfiguration: what a bundle has for a board without a configuration.

Until the board has served once, a later bundle's may take its place: what the first one got wrong can be mended so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgellm.durable_file import write_durably
from edgellm.host.disk_room import write_failure
from edgellm.host.host_state import HostState
from edgellm.host.paths import HostPaths
from edgellm.host.source import Source

BUNDLED = "edgellm.toml"
MODE = 0o644


class FirstConfiguration:
    def __init__(self, paths: HostPaths, state: HostState) -> None:
        self._file = paths.configuration
        self._state = state

    @property
    def has_never_served(self) -> bool:
        """An installation was begun here, and has not come to its end."""
        return self._state.first_installation() is not None

    def begin(self) -> None:
        """Before the installation writes anything. Raises UpgradeError, or HostSpaceError."""
        if not self.has_never_served:
            self._state.write_first_installation("")

    @contextmanager
    def noted(self) -> Iterator[None]:
        """What the release's own installation writes where there is none is nobody's choice either."""
        was_free = self._is_free()
        yield
        if was_free:
            self._state.write_first_installation(_digest(self._file) or "")

    def end(self) -> None:
        """It serves: from now on the configuration is the administrator's."""
        self._state.end_first_installation()

    def offered_by(self, source: Source) -> Path | None:
        """The bundle's, where the board's place for it is free."""
        bundled = self._bundled(source)
        return bundled if bundled is not None and self.has_never_served and self._is_free() else None

    def note_of(self, source: Source) -> list[str]:
        """A line where the bundle's is not taken, and says something else."""
        bundled = self._bundled(source)
        if bundled is None or self.offered_by(source) is not None or _digest(bundled) == _digest(self._file):
            return []
        return [f"kept {self._file}: {bundled} is for machines that have none"]

    def place(self, file: Path) -> None:
        """Raises UpgradeError, or HostSpaceError."""
        self._state.write_first_installation(_digest(file) or "")
        try:
            self._file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_durably(self._file, file.read_bytes(), MODE)
        except OSError as error:
            raise write_failure(self._file, error) from None

    def _is_free(self) -> bool:
        return not self._file.exists() or _digest(self._file) == self._state.first_installation()

    def _bundled(self, source: Source) -> Path | None:
        file = None if source.extras is None else source.extras / BUNDLED
        return file if file is not None and file.is_file() else None


def _digest(file: Path) -> str | None:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None
