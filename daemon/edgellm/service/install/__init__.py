"""Puts the units of one mode onto a system; `edgellm.host` takes them off again."""

from edgellm.host.installed_files import Change
from edgellm.host.target import Target
from edgellm.service.install.cdi import podman_refusal, refusal_of
from edgellm.service.install.installation import install_files, installed_mode, note_enabled, units_to_enable
from edgellm.service.install.system_files import Mode, SystemFile, system_files

__all__ = [
    "Change",
    "Mode",
    "SystemFile",
    "Target",
    "install_files",
    "installed_mode",
    "note_enabled",
    "podman_refusal",
    "refusal_of",
    "system_files",
    "units_to_enable",
]
