"""EditHistory: which of the administrator's files are their own, and since when; the others an upgrade placed.

Switches of the release are counted, for a board's clock may jump. What the administrator wrote is theirs still when a
rollback brought it back, and it is as old as when it was seen first: a release that was left after that has its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgellm.host.operator_files import Digests, differing


@dataclass(frozen=True, slots=True)
class Edit:
    """``digest`` is None for a file that was removed. ``switch`` is the first one that found it so."""

    digest: str | None
    switch: int


@dataclass(frozen=True, slots=True)
class Departure:
    """The last time that a release was left, and which files were the administrator's then."""

    switch: int
    edits: Mapping[str, Edit]


@dataclass(frozen=True, slots=True)
class EditHistory:
    """``placed`` are the files that an upgrade put there last, as it did, ``edits`` those of now that are not."""

    placed: Digests = field(default_factory=dict)
    edits: Mapping[str, Edit] = field(default_factory=dict)
    departures: Mapping[str, Departure] = field(default_factory=dict)
    switches: int = 0

    def edited_since(self, release_id: str, present: Digests, kept: Digests) -> Collection[str]:
        """Since the release was left: those that are not as in ``kept``, which it had then."""
        departure = self.departures.get(release_id)
        left_at = departure.switch if departure else 0
        seen = self._edits_among(present, kept)
        return {name for name in differing(present, kept) if name in seen and seen[name].switch > left_at}

    def after_switch(
        self, left_id: str, before: Digests, present: Digests, brought_back_id: str | None, *, are_edits: bool
    ) -> EditHistory:
        """``before`` are the files as ``left_id`` was left, ``present`` as they are now. ``brought_back_id`` is the
        release whose files came back. With ``are_edits`` what changed counts as the administrator's."""
        leaving = self._edits_among(before, {})
        changed = differing(present, before)
        placed = {name: digest for name, digest in self.placed.items() if name not in changed}
        edits = {name: edit for name, edit in leaving.items() if name not in changed}
        earlier = self.departures.get(brought_back_id) if brought_back_id is not None else None
        for name, digest in changed.items():
            known = earlier.edits.get(name) if earlier else None
            if known is not None and known.digest == digest:
                edits[name] = known
            elif not are_edits:
                placed[name] = digest
        departures = {**self.departures, left_id: Departure(self.switches + 1, leaving)}
        return EditHistory(placed, edits, departures, self.switches + 1)

    def of_releases(self, ids: Collection[str]) -> EditHistory:
        """Without those that are kept no longer."""
        departures = {one: departure for one, departure in self.departures.items() if one in ids}
        return EditHistory(self.placed, self.edits, departures, self.switches)

    def _edits_among(self, present: Digests, kept: Digests) -> dict[str, Edit]:
        """What is not as an upgrade placed it; what was never seen so far is of the coming switch."""
        found = {}
        for name in {*present, *kept, *self.placed, *self.edits}:
            digest, known = present.get(name), self.edits.get(name)
            if name not in self.placed or self.placed[name] != digest:
                is_known = known is not None and known.digest == digest
                found[name] = known if known is not None and is_known else Edit(digest, self.switches + 1)
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "files": dict(self.placed),
            "edits": _edits_as_json(self.edits),
            "departures": {
                name: {"switch": one.switch, "edits": _edits_as_json(one.edits)}
                for name, one in self.departures.items()
            },
            "switches": self.switches,
        }

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> EditHistory:
        """Earlier releases wrote the files alone."""
        departures = {
            name: Departure(int(one["switch"]), _edits_of_json(one["edits"]))
            for name, one in value.get("departures", {}).items()
        }
        edits = _edits_of_json(value.get("edits", {}))
        return cls(dict(value["files"]), edits, departures, int(value.get("switches", 0)))


def _edits_as_json(edits: Mapping[str, Edit]) -> dict[str, Any]:
    return {name: {"sha256": edit.digest, "switch": edit.switch} for name, edit in edits.items()}


def _edits_of_json(value: Mapping[str, Any]) -> dict[str, Edit]:
    return {name: Edit(edit["sha256"], int(edit["switch"])) for name, edit in value.items()}
