"""``--admin-socket``, and which running daemon is meant without it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from edgellm.config.admin_location import default_admin_sockets
from edgellm.errors import ConfigError
from edgellm.host.option_types import named_path


def add_admin_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--admin-socket",
        metavar="FILE",
        type=named_path,
        help="the daemon's socket (default: admin_socket of the configuration, else where daemons have it)",
    )


def admin_socket(namespace: argparse.Namespace) -> Path:
    """Without one that is named, the first default place where something is. What is wrong is the daemon's to say."""
    from edgellm.config.load import peek_admin_socket

    named: Path | None = namespace.admin_socket
    unreadable: ConfigError | None = None
    try:
        named = named or peek_admin_socket(namespace.config)
    except ConfigError as error:
        unreadable = error
    if named is not None:
        return named
    places = default_admin_sockets(os.environ)
    found = next((place for place in places if os.path.exists(place)), None)
    if found is None and unreadable is not None:
        raise unreadable
    return found or places[-1]
