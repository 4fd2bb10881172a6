"""Puts the units of one mode onto a system, and takes them off again."""

from edgellm.service.install.cdi import refusal_of
from edgellm.service.install.installation import Change, install_files, installed_mode, remove_files
from edgellm.service.install.system_files import Mode, SystemFile, system_files
from edgellm.service.install.target import Target

__all__ = [
    "Change",
    "Mode",
    "SystemFile",
    "Target",
    "install_files",
    "installed_mode",
    "refusal_of",
    "remove_files",
    "system_files",
]
