"""``edgellm reload``: lets the running daemon take its configuration on anew, and says what changed."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

from edgellm.cli.arguments import add_config_option
from edgellm.config.admin_location import default_admin_sockets
from edgellm.errors import ConfigError

WAIT_SECONDS = 600.0
WAIT_SECONDS_MAX = 86_400.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--admin-socket",
        metavar="FILE",
        type=Path,
        help="the daemon's socket (default: admin_socket of the configuration, else where daemons have it)",
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        nargs="?",
        type=_seconds,
        const=WAIT_SECONDS,
        help="wait until the models that changed are loaded, and end with the reason of one that was not "
        f"(default: {WAIT_SECONDS:g} s)",
    )
    add_config_option(parser)


def run(namespace: argparse.Namespace) -> int:
    from edgellm.service.admin_client import ask_daemon, error_of
    from edgellm.service.admin_messages import Reload

    config = None if namespace.config is None else os.path.abspath(namespace.config)
    done = ask_daemon(_socket(namespace), Reload(config, namespace.wait))
    file = f"configuration file {done.config}" if done.config else "without a configuration file"
    print(f"daemon of pid {done.pid}, {file}:")
    print("\n".join(done.lines) if done.lines else "nothing changed")
    if done.is_loading and namespace.wait is None:
        print("GET /v1/models and systemctl status show how loading goes; edgellm reload --wait waits for it")
    sys.stdout.flush()
    errors = [error_of(failure) for failure in done.failures]
    for error in errors[1:]:
        sys.stderr.write(f"edgellm: {error}\n")
    for error in errors[:1]:
        raise error
    return 0


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= WAIT_SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds above 0, up to {WAIT_SECONDS_MAX:g}")
    return seconds


def _socket(namespace: argparse.Namespace) -> Path:
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
