"""Engines of kept releases stay: they are pinned when their release is left, and let go when it is dropped."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

from edgellm.errors import UpgradeError
from edgellm.host.release import Release
from edgellm.host.releases import Releases


def pin_present(releases: Releases, release: Release, ours: Collection[str]) -> list[str]:
    """Pin every engine that is here; their names but for those that somebody else pinned. ``ours`` are pinned for other
    releases already. Raises UpgradeError."""
    said = releases.command(release, "engine", "list", "--json")
    if said.code != 0:
        raise UpgradeError(f"the engines of {release.id} cannot be listed: {said.last_words}")
    try:
        listed = json.loads(said.output)
        sound = [one for one in listed if not one["read_only"] and not one["problem"]]
        names = [str(one["name"]) for one in sound if not one["pinned"]]
        shared = [str(one["name"]) for one in sound if one["pinned"] and one["name"] in ours]
    except (ValueError, KeyError, TypeError):
        raise UpgradeError(f"edgellm engine list of {release.id} said what this edgellm does not know") from None
    if names:
        pinned = releases.command(release, "engine", "pin", *names)
        if pinned.code != 0:
            raise UpgradeError(f"the engines of {release.id} cannot be pinned: {pinned.last_words}")
    return [*names, *shared]


def let_go(releases: Releases, release: Release, names: Iterable[str]) -> None:
    """An engine that is gone, or cannot be unpinned, is no reason to stop."""
    for name in sorted(names):
        releases.command(release, "engine", "unpin", name)
