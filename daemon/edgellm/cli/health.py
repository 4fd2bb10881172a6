"""``edgellm health``: whether the daemon of this machine answers, for health checks. Quick, and loads no model."""

from __future__ import annotations

import argparse

from edgellm.cli.admin_option import add_admin_option, admin_socket
from edgellm.cli.arguments import add_config_option

ANSWER_DEADLINE_SECONDS = 8.0  # below the deadline of the image's health check


def configure(parser: argparse.ArgumentParser) -> None:
    add_admin_option(parser)
    add_config_option(parser)


def run(namespace: argparse.Namespace) -> int:
    """0 when every required model can take a request; else the reason on standard error and its exit code."""
    from edgellm.service.admin_client import ask_daemon
    from edgellm.service.admin_messages import Health

    done = ask_daemon(admin_socket(namespace), Health(), deadline_seconds=ANSWER_DEADLINE_SECONDS)
    print("\n".join(done.lines))
    return 0
