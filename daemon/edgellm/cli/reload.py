"""``edgellm reload``: lets the running daemon take its configuration on anew, and says what changed."""

from __future__ import annotations

import argparse
import os
import sys

from edgellm.cli.admin_option import add_admin_option, admin_socket
from edgellm.cli.arguments import add_config_option
from edgellm.host.option_types import duration

WAIT_SECONDS = 600.0
WAIT_SECONDS_MAX = 86_400.0


def configure(parser: argparse.ArgumentParser) -> None:
    add_admin_option(parser)
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        nargs="?",
        type=duration("seconds", WAIT_SECONDS_MAX),
        const=WAIT_SECONDS,
        help="wait until the models that changed are loaded, and end with the reason of one that was not "
        f"(default: {WAIT_SECONDS:g} s)",
    )
    add_config_option(parser)


def run(namespace: argparse.Namespace) -> int:
    from edgellm.service.admin_client import ANSWER_DEADLINE_SECONDS, ask_daemon, error_of
    from edgellm.service.admin_messages import Reload

    config = None if namespace.config is None else os.path.abspath(namespace.config)
    done = ask_daemon(
        admin_socket(namespace),
        Reload(config, namespace.wait),
        deadline_seconds=ANSWER_DEADLINE_SECONDS + (namespace.wait or 0.0),
    )
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
