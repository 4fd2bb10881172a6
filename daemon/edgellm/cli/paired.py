"""``edgellm paired``: the clients that paired with this board, and their keys taken back."""

from __future__ import annotations

import argparse

from edgellm.cli.admin_option import add_admin_option, admin_socket
from edgellm.cli.arguments import add_config_option


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="list|revoke", required=True)
    listing = actions.add_parser("list", help="the clients that paired, and the beginning of their keys' SHA-256")
    revoke = actions.add_parser("revoke", help="take a client's key back; what it has running ends")
    revoke.add_argument("name", metavar="NAME", help="a name of edgellm paired list")
    for action in (listing, revoke):
        add_admin_option(action)
        add_config_option(action)


def run(namespace: argparse.Namespace) -> int:
    from edgellm.service.admin_client import ask_daemon
    from edgellm.service.admin_messages import ListPaired, Request, RevokePaired

    request: Request = ListPaired() if namespace.action == "list" else RevokePaired(namespace.name)
    for line in ask_daemon(admin_socket(namespace), request).lines:
        print(line)
    return 0
