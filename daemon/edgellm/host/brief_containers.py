"""Containers that run one command of edgellm and go, and the end of those that a power cut left.

What is left of one, if only in podman's store and not in its list, keeps its image from being removed.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from edgellm.host.commands import attempt

NAME_PREFIX = "edgellm-once-"  # of the command on the host, too
IN_USE = ("initialized", "running", "paused", "stopping")
# Podman would set up a timer for the image's health check.
_RUN = ("podman", "run", "--rm", "--pull=never", "--no-healthcheck")
# In the host's own root and with its systemd, which answers only processes that it can see.
_ON_THE_HOST = ("--network=none", "--privileged", "--pid=host", "--user=0:0", "--volume=/:/host")


def run_briefly(*options: str, name: str | None = None) -> list[str]:
    """The beginning of a podman run: options and the image follow. ``name`` is for one that others must find."""
    return [*_RUN, f"--name={name or NAME_PREFIX + uuid.uuid4().hex}", *options]


def run_secretly(*options: str) -> list[str]:
    """What it prints gets into no journal."""
    return run_briefly("--log-driver=none", *options)


def run_on_the_host() -> list[str]:
    """For an image that changes the host, as its `edgellm install` does."""
    return run_secretly(*_ON_THE_HOST)


def remove_left() -> None:
    """Those that run stay: they are somebody's. Raises UpgradeError on a host without podman."""
    listed = attempt(["podman", "ps", "--all", "--external", "--format", "{{.ID}} {{.State}} {{.Names}}"])
    left = _left_of(listed.output.splitlines())
    if left:
        attempt(["podman", "rm", "--force", "--ignore", *left])


def _left_of(lines: Sequence[str]) -> list[str]:
    found = [line.split() for line in lines]
    return [words[0] for words in found if len(words) == 3 and words[1] not in IN_USE and _is_ours(words[2])]


def _is_ours(name: str) -> bool:
    return name.startswith(NAME_PREFIX)
