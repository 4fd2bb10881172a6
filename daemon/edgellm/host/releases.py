"""Releases: what the two kinds of release have in common for an upgrade."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from edgellm.host.commands import Said
from edgellm.host.release import Release
from edgellm.host.source import Source


class Releases(Protocol):
    """Every method but ``stage`` may be done again after a power cut. All raise UpgradeError."""

    def current(self) -> Release:
        """The one that the service starts."""

    def identify(self, source: Source) -> Release | None:
        """Which one the source is. None where only staging tells."""

    def needed_bytes(self, source: Source) -> tuple[int, Path]:
        """Room that staging takes, at most, and where."""

    def stage(self, source: Source) -> Release:
        """Put it beside the others, whole or not at all."""

    def is_staged(self, release: Release) -> bool: ...

    def unstage_unfinished(self) -> None:
        """Remove what an interrupted staging left, and whatever it made current."""

    def command(self, release: Release, *arguments: str) -> Said:
        """`edgellm ARGUMENTS` of that release, as the service's user; its exit code is the caller's."""

    def check_configuration(self, release: Release, file: Path) -> Said:
        """`edgellm config check` of that release, with what drop-ins set beside the file."""

    def prewarm(self, release: Release, configuration: Path | None = None) -> None:
        """Fetch, import and build what it needs, while another release serves. ``configuration`` is for one that it is
        to have in the place of the present one."""

    def switch(self, release: Release) -> None:
        """The service's next start is of this one."""

    def install(self, release: Release) -> None:
        """Let it put its units and programs onto the host."""

    def drop(self, release: Release) -> None:
        """It is gone from the disk."""

    def present(self) -> Sequence[str]:
        """The ids of those that are whole on the disk."""
