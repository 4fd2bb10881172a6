"""Where the daemon's admin socket is, for the daemon that opens it and the commands that look for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

SYSTEM_ADMIN_SOCKET = Path("/run/edgellm/admin.sock")


def default_admin_sockets(environ: Mapping[str, str]) -> Sequence[Path]:
    """In the order in which they are tried: a daemon of systemd's, of the user's session, of the machine."""
    folders = [
        *(Path(folder) for folder in environ.get("RUNTIME_DIRECTORY", "").split(":")[:1]),
        Path(environ.get("XDG_RUNTIME_DIR", "")) / "edgellm",
    ]
    return [*(folder / SYSTEM_ADMIN_SOCKET.name for folder in folders if folder.is_absolute()), SYSTEM_ADMIN_SOCKET]
