"""The verbs of the host tool, each a module with ``configure(parser)`` and ``run(namespace)``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostVerb:
    summary: str
    module: str


HOST_VERBS: Mapping[str, HostVerb] = {
    "uninstall": HostVerb("Remove the service's units again", "edgellm.host.uninstall_verb"),
    "first-boot": HostVerb("Make a board of the image it was flashed with", "edgellm.host.first_boot_verb"),
    "upgrade": HostVerb("Serve another release, or the earlier one again", "edgellm.host.upgrade_verb"),
    "announce": HostVerb("Announce the running server on the local network", "edgellm.host.announce_verb"),
    "report": HostVerb("Write an archive for support, without keys and prompts", "edgellm.host.report_verb"),
}
