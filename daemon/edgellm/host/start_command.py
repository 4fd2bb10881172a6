"""How the server of this machine is started: whoever installed it as a service has systemd do it."""

from __future__ import annotations

import os

from edgellm.host.installed_files import RECORD

CREDENTIALS_FOLDER = "/etc/edgellm/credentials"


def start_command() -> str:
    """Also in a container of the command on the host, which has the credentials and not the record."""
    is_service = os.path.exists(f"/{RECORD}") or os.environ.get("CREDENTIALS_DIRECTORY") == CREDENTIALS_FOLDER
    return "systemctl start edgellm" if is_service else "edgellm serve"
