"""OperatorEdits: what the administrator wrote after an upgrade stays when its release is left for an earlier one.

Only what an upgrade put there itself goes back with it, and all of it where the earlier release refuses the edits.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from edgellm.durable_file import write_durably
from edgellm.errors import UpgradeError
from edgellm.host.host_state import HostState, Journey
from edgellm.host.operator_files import CONFIGURATION, differing, edited_since, operator_files, save_copies
from edgellm.host.paths import HostPaths
from edgellm.host.release import Release
from edgellm.host.releases import Releases
from edgellm.host.snapshot import content_in, has_snapshot, operator_files_in, restore_snapshot

COMING = ".edgellm.toml.coming"


class OperatorEdits:
    def __init__(self, paths: HostPaths, state: HostState, releases: Releases) -> None:
        self._paths = paths
        self._state = state
        self._releases = releases
        self._coming = paths.configuration.with_name(COMING)

    def has_what_belonged_to(self, release: Release) -> bool:
        return has_snapshot(self._state.snapshot_of(release))

    def check(self, journey: Journey, release: Release) -> Journey:
        """By the release itself, of what it is to serve with. Raises UpgradeError."""
        journey = replace(journey, edits_folder=None, refusal_of_edits=None)
        edited: Collection[str] = ()
        kept = self._state.snapshot_of(release)
        is_brought_back = journey.is_rollback and has_snapshot(kept)
        if journey.config_file is not None:
            self._write_coming(_content(Path(journey.config_file)))
        elif is_brought_back:
            edited = self._edited_since(release)
            if CONFIGURATION not in edited:
                self._write_coming(self._kept_configuration(kept))
            if not edited:
                return journey  # it served with that
        file = self.coming or self._paths.configuration
        checked = self._releases.check_configuration(release, file) if file.exists() else None
        if checked is None or checked.code == 0:
            return journey
        named = checked.last_words.replace(str(file), journey.config_file or str(self._paths.configuration))
        if not edited:
            raise UpgradeError(f"{release.id} refuses the configuration: {named}")
        self._write_coming(self._kept_configuration(kept))
        folder = self._state.free_edits_folder(journey.from_release)
        return replace(journey, edits_folder=str(folder), refusal_of_edits=named)

    @property
    def coming(self) -> Path | None:
        """The configuration that the release is to have, where that is not the present one: for it to prepare with."""
        return self._coming if self._coming.is_file() else None

    def forget_coming(self) -> None:
        self._coming.unlink(missing_ok=True)

    def _write_coming(self, content: bytes) -> None:
        """Beside the present one: the service's user sees it there, in a container too."""
        try:
            self._coming.parent.mkdir(parents=True, exist_ok=True)
            write_durably(self._coming, content, 0o644)
        except OSError as error:
            raise UpgradeError(f"{error.filename or self._coming}: {error.strerror}") from None

    def _kept_configuration(self, kept: Path) -> bytes:
        """Without one the defaults hold, as with an empty one."""
        return content_in(kept, CONFIGURATION) or b""

    def bring_back(self, journey: Journey, release: Release) -> None:
        """What belonged to the release when it was left, but for later edits. Raises UpgradeError."""
        kept = self._state.snapshot_of(release)
        edited = self._edited_since(release)
        if journey.edits_folder is not None:
            save_copies(self._paths, edited, Path(journey.edits_folder))
            edited = ()
        restore_snapshot(self._paths, kept, edited)

    def _edited_since(self, release: Release) -> Collection[str]:
        kept = operator_files_in(self._state.snapshot_of(release))
        return self._state.edit_history().edited_since(release.id, operator_files(self._paths), kept)

    def note_switch(self, journey: Journey, brought_back: Release | None) -> Journey:
        """When it is done: what it changed of them."""
        left = journey.from_release
        before, present = operator_files_in(self._state.snapshot_of(left)), operator_files(self._paths)
        # With the release that serves already, another configuration is an edit as any.
        is_same_release = journey.to_release is not None and journey.to_release.id == left.id
        history = self._state.edit_history().after_switch(
            left.id, before, present, brought_back.id if brought_back else None, are_edits=is_same_release
        )
        return replace(journey, placed=differing(present, before), edit_history=history)

    def undo_switch(self, journey: Journey) -> None:
        """What somebody edited while the release was tried stays. Raises UpgradeError."""
        before = self._state.snapshot_of(journey.from_release)
        edited: Collection[str] = ()
        if journey.placed is not None:
            edited = edited_since(self._paths, journey.placed, operator_files_in(before))
        restore_snapshot(self._paths, before, edited)
        if journey.edits_folder is not None and not edited:
            shutil.rmtree(journey.edits_folder, ignore_errors=True)  # they are where they were

    def remember_switch(self, journey: Journey) -> None:
        """Its release serves. Doing it twice is as doing it once."""
        history = journey.edit_history
        if history is None:  # the upgrade was begun by an earlier release
            now = self._state.edit_history()
            history = replace(now, placed={**now.placed, **(journey.placed or {})})
        self._state.write_edit_history(history.of_releases({one.id for one in self._state.releases()}))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UpgradeError(f"{path}: {error.strerror}") from None
